"""How the layers of an image or artifact make one folder."""

from collections.abc import Iterator
from dataclasses import dataclass

from plnt.clients.weights.tar_reader import ArchiveFault, Gunzip, Kind, Member, Stream, TarReader
from plnt.model.file_name import find_name_fault

MAX_MEMBERS = 100_000
"""Most members of one archive, those outside the model's folder included."""
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True, slots=True)
class Removal:
    """A whiteout: what lies at ``path`` in the layers below is gone; an empty path is everything."""

    path: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the model; its bytes are the reader's next ones."""

    path: str
    size: int


def walk(reader: TarReader, strip: str) -> Iterator[Entry | Removal]:
    """Give what a layer does to the model's folder ``strip``.

    Raises:
        ArchiveFault: a member of the folder is no plain file, or its name is not safe.
    """
    for _ in range(MAX_MEMBERS):
        member = reader.next()
        if member is None:
            return
        if strip and member.name.removeprefix("./") in {WHITEOUT + strip.rstrip("/"), OPAQUE}:
            yield Removal("")
            continue
        path = _place(member, strip)
        if path is not None:
            yield from _read_member(member, path, strip)
    raise ArchiveFault(f"has more than {MAX_MEMBERS} members")


def _place(member: Member, strip: str) -> str | None:
    """Give a member's path below the folder; none when it is outside."""
    name = member.name.removeprefix("./").rstrip("/") if member.kind is Kind.FOLDER else member.name.removeprefix("./")
    if not strip:
        return name
    if name == strip.rstrip("/"):
        return "" if member.kind is Kind.FOLDER else name
    return name.removeprefix(strip) if name.startswith(strip) else None


def _read_member(member: Member, path: str, strip: str) -> Iterator[Entry | Removal]:
    if member.kind is Kind.FOLDER:
        if path not in {"", "."} and (fault := find_name_fault(path)):
            raise ArchiveFault(f"has a folder whose name {member.name!r} {fault}")
        return
    fault = find_name_fault(path)
    if fault:
        raise ArchiveFault(f"has a member whose name {member.name!r} {fault}")
    if member.kind is not Kind.FILE:
        raise ArchiveFault(f"has {member.name!r}, which is a {member.kind}: copy the file itself")
    folder, _, name = path.rpartition("/")
    # Only images have whiteouts; elsewhere the name means nothing.
    if strip and name == OPAQUE:
        yield Removal(folder)
    elif strip and name.startswith(WHITEOUT):
        yield Removal("/".join(part for part in (folder, name.removeprefix(WHITEOUT)) if part))
    else:
        yield Entry(path, member.size)


def covers(removal: Removal, path: str) -> bool:
    """Tell whether a removal takes away ``path``."""
    return not removal.path or path == removal.path or path.startswith(f"{removal.path}/")


def open_archive(stream: Stream, unpack: str) -> TarReader:
    """Give the reader of an archive that is packed as ``unpack``."""
    return TarReader(Gunzip(stream) if unpack == "tar+gzip" else stream)
