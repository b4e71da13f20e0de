"""The grammar of ``spec.model.storageUri``: s3, gs, oci and hf URIs, parsed and printed.

``str`` of a parsed URI is its canonical form; parsing that gives an equal URI. A path never starts or ends with
a slash and has no empty, ``.`` or ``..`` segment: it is a folder of the source, and its parts become file names.
"""

import re
from collections.abc import Callable
from enum import StrEnum

from plnt.errors import SpecInvalid
from plnt.model.message import Message

FIELD = "spec.model.storageUri"
MAX_CHARS = 2048
"""Longest URI, as in the CRD."""
MAX_OCI_CHARS = 255
"""Longest ``HOST/NAME`` that registries and their clients agree on."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,220}[A-Za-z0-9]")
_OCI = re.compile(
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?)"
    r"/(?P<name>[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
    r"(?:@(?P<digest>[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32,}))?"
)
_HF = re.compile(
    r"(?:models/)?(?P<owner>[A-Za-z0-9][A-Za-z0-9._-]*)/(?P<repo>[A-Za-z0-9_][A-Za-z0-9._-]*)"
    r"(?:[@:](?P<revision>refs/(?:pr/[0-9]+|convert/[A-Za-z0-9._-]+)(?=/|$)|(?:[A-Za-z0-9._-]|%2[Ff])+))?"
    r"(?:/(?P<path>.+))?"
)
_HF_SPECIAL = re.compile(r"refs/(?:pr/[0-9]+|convert/[A-Za-z0-9._-]+)")
_HF_OTHER_TYPES = frozenset({"models", "datasets", "spaces", "kernels", "buckets"})


class Scheme(StrEnum):
    """Where weights can lie."""

    S3 = "s3"
    GS = "gs"
    OCI = "oci"
    HF = "hf"


class BucketUri(Message):
    """A folder of an object store: ``s3://BUCKET/PATH`` or ``gs://BUCKET/PATH``; an empty path is the whole bucket."""

    scheme: Scheme
    bucket: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.path}" if self.path else "")

    @property
    def prefix(self) -> str:
        """Key prefix of everything in the folder, with exactly one slash at its end, so that no sibling matches."""
        return f"{self.path}/" if self.path else ""


class OciUri(Message):
    """An artifact of a registry; where both are given, the digest decides and the tag is a label."""

    host: str
    """Host, with its port if one was given."""
    name: str
    tag: str = ""
    digest: str = ""
    """``ALGORITHM:HEX`` of the manifest."""

    @property
    def scheme(self) -> Scheme:
        """Always oci."""
        return Scheme.OCI

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"oci://{self.host}/{self.name}{tag}" + (f"@{self.digest}" if self.digest else "")


class HfUri(Message):
    """A model repository of the Hugging Face Hub; an empty revision is the default branch."""

    owner: str
    repo: str
    revision: str = ""
    path: str = ""

    @property
    def scheme(self) -> Scheme:
        """Always hf."""
        return Scheme.HF

    def __str__(self) -> str:
        revision = self.revision if _HF_SPECIAL.fullmatch(self.revision) else self.revision.replace("/", "%2F")
        at = f"@{revision}" if revision else ""
        return f"hf://{self.owner}/{self.repo}{at}" + (f"/{self.path}" if self.path else "")


StorageUri = BucketUri | OciUri | HfUri


def parse_storage_uri(text: str) -> StorageUri:
    """Parse a storage URI.

    Raises:
        SpecInvalid: it is none; the message names the field and the grammar, and does not repeat the URI, which
            may hold what was not meant to be shown.
    """
    word, mark, rest = text.partition("://")
    if not mark or word not in _PARSERS:
        raise _invalid("must start with s3://, gs://, oci:// or hf://")
    if len(text) > MAX_CHARS:
        raise _invalid(f"is longer than {MAX_CHARS} characters: move the weights to a shorter path")
    if "@" in rest.partition("/")[0]:
        raise _invalid("holds a user name or password: take credentials out of it")
    if re.search(r"[?#\s\x00-\x1f\x7f]", rest):
        raise _invalid("holds a query, a fragment, a blank or a control character: remove it")
    scheme = Scheme(word)
    return _PARSERS[scheme](scheme, rest)


def _parse_bucket(scheme: Scheme, rest: str) -> BucketUri:
    bucket, _, path = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise _invalid(f"names no bucket: write {scheme}://BUCKET/PATH with 3 letters or more in BUCKET")
    return BucketUri(scheme=scheme, bucket=bucket, path=_checked_path(path))


def _parse_oci(_: Scheme, rest: str) -> OciUri:
    match = _OCI.fullmatch(rest)
    if match is None:
        raise _invalid("is no reference: write oci://HOST[:PORT]/NAME[:TAG][@DIGEST] with NAME in lower case")
    if len(match["host"]) + len(match["name"]) + 1 > MAX_OCI_CHARS:
        raise _invalid(f"has a HOST/NAME longer than {MAX_OCI_CHARS} characters: choose a shorter name")
    return OciUri(host=match["host"], name=match["name"], tag=match["tag"] or "", digest=match["digest"] or "")


def _parse_hf(_: Scheme, rest: str) -> HfUri:
    match = _HF.fullmatch(rest)
    if match is None or match["owner"] in _HF_OTHER_TYPES:
        raise _invalid("is no model repository: write hf://OWNER/REPO[@REVISION], a slash in REVISION as %2F")
    revision = re.sub("%2f", "/", match["revision"] or "", flags=re.IGNORECASE)
    return HfUri(owner=match["owner"], repo=match["repo"], revision=revision, path=_checked_path(match["path"] or ""))


def _checked_path(path: str) -> str:
    stripped = path.strip("/")
    if any(part in {"", ".", ".."} for part in stripped.split("/")) and stripped:
        raise _invalid("has an empty, '.' or '..' segment in its path: write the path out")
    return stripped


def _invalid(fault: str) -> SpecInvalid:
    return SpecInvalid(f"{FIELD} {fault}")


_PARSERS: dict[str, Callable[[Scheme, str], StorageUri]] = {
    Scheme.S3: _parse_bucket,
    Scheme.GS: _parse_bucket,
    Scheme.OCI: _parse_oci,
    Scheme.HF: _parse_hf,
}
