"""What an answer to a ranged request means for a pull."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from plnt.errors import AccessDenied, PlntError, SourceChanged, SourceUnavailable, WeightsNotFound
from plnt.model.pull_plan import PlannedFile

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
MAX_PAUSE_SECONDS = 120.0
"""Longest Retry-After that is honoured at once, in seconds."""


class Verdict(StrEnum):
    """What to do with the answer's body."""

    PART = "part"
    """The bytes that were asked for follow."""
    WHOLE = "whole"
    """The server knows no ranges: the whole file follows."""
    RELINK = "relink"
    """The link expired."""
    AGAIN = "again"
    """Not this time."""


def judge(status: int, headers: Mapping[str, str], first: int, file: PlannedFile) -> Verdict:
    """Judge an answer to a request for the bytes from ``first`` on.

    Raises:
        SourceChanged, WeightsNotFound, SourceUnavailable: asking again gives the same.
    """
    if status in {200, 206}:
        _check_same(headers, file)
        return _judge_body(status, headers, first, file)
    # 400 is what S3 answers when the token that signed the link expired.
    if status in {400, 401, 403}:
        return Verdict.RELINK
    if status in {412, 416}:
        raise changed(file)
    if status in {404, 410} and file.version and not file.validator:
        # The generation that was pinned is gone: stores without versions drop it when the object is written again.
        raise changed(file)
    if status in {404, 410}:
        raise WeightsNotFound(f"{file.path} was removed from the source during the pull: put it back, then retry")
    if status in _BUSY:
        return Verdict.AGAIN
    if 300 <= status < 400:
        raise WeightsNotFound(
            f"the source redirects {file.path} to another host, which is not followed: set AWS_REGION, or the "
            f"endpoint, to where the bucket is"
        )
    raise SourceUnavailable(f"the source answered HTTP {status} for {file.path}: check its endpoint")


def _judge_body(status: int, headers: Mapping[str, str], first: int, file: PlannedFile) -> Verdict:
    if headers.get("content-encoding", "identity") != "identity":
        raise SourceUnavailable(f"the source sends {file.path} compressed: store it without Content-Encoding")
    if status == 200:
        if headers.get("content-length", str(file.size)) != str(file.size):
            raise changed(file)
        return Verdict.WHOLE
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", ""))
    if match is None or int(match[1]) != first:
        return Verdict.AGAIN
    if int(match[3]) != file.size:
        raise changed(file)
    return Verdict.PART


def _check_same(headers: Mapping[str, str], file: PlannedFile) -> None:
    etag = headers.get("etag", "").removeprefix("W/").strip('"')
    if file.validator and etag and etag != file.validator:
        raise changed(file)


def changed(file: PlannedFile) -> PlntError:
    """Give the error for a file that is no longer what was planned."""
    pinned = file.validator or file.version
    return SourceChanged(
        f"{file.path} was replaced at the source after it was pinned ({file.size} bytes, {pinned}): let the upload "
        f"finish, then retry to pull what is there now"
    )


def denied(file: PlannedFile, text: str) -> PlntError:
    """Give the error for a source that refuses fresh links too; ``text`` is its answer."""
    code = re.search(r"<Code>(\w+)</Code>", text)
    return AccessDenied(
        f"the source refuses {file.path} ({code[1] if code else 'HTTP 403'}): give plnt's credentials the right to "
        f"read it (on S3 s3:GetObject)"
    )


def read_pause(headers: Mapping[str, str]) -> float:
    """Give the seconds that Retry-After asks for; 0 when it is absent or in the past."""
    text = headers.get("retry-after", "")
    if text.isdecimal():
        return min(float(text), MAX_PAUSE_SECONDS)
    try:
        pause = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
    return min(max(pause, 0.0), MAX_PAUSE_SECONDS)
