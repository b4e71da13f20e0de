import pytest
from hypothesis import given
from hypothesis import strategies as st

from plnt.errors import SpecInvalid
from plnt.model.storage_uri import BucketUri, HfUri, OciUri, Scheme, parse_storage_uri

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        (
            "s3://plnt-models/llama-3.1-70b/fp16",
            BucketUri(scheme=Scheme.S3, bucket="plnt-models", path="llama-3.1-70b/fp16"),
        ),
        ("s3://bucket/p/", BucketUri(scheme=Scheme.S3, bucket="bucket", path="p")),
        ("gs://bucket", BucketUri(scheme=Scheme.GS, bucket="bucket")),
        ("s3://bucket/a@b", BucketUri(scheme=Scheme.S3, bucket="bucket", path="a@b")),
        ("oci://r.test:5000/a/b_c", OciUri(host="r.test:5000", name="a/b_c")),
        (f"oci://r.test/a:v1@{DIGEST}", OciUri(host="r.test", name="a", tag="v1", digest=DIGEST)),
        ("hf://meta-llama/Llama-3.1-70B", HfUri(owner="meta-llama", repo="Llama-3.1-70B")),
        ("hf://models/o/r:main", HfUri(owner="o", repo="r", revision="main")),
        ("hf://o/r@refs/pr/12/sub/dir", HfUri(owner="o", repo="r", revision="refs/pr/12", path="sub/dir")),
        ("hf://o/r@feature%2fx", HfUri(owner="o", repo="r", revision="feature/x")),
    ],
)
def test_storage_uri_is_parsed(text: str, uri: object) -> None:
    assert parse_storage_uri(text) == uri


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://h/x",
        "s3:/b/k",
        "S3://bucket/k",
        "s3://",
        "s3://b/k",
        "s3://u:p@bucket/k",
        "s3://bucket/../k",
        "s3://bucket/a//b",
        "s3://bucket/k?x=1",
        "s3://bucket/k k",
        "s3://bucket/k\n",
        "s3://bucket/" + "k" * 2048,
        "oci://host",
        "oci://host/Upper",
        "oci://u:p@host/a",
        "oci://host/a@sha256:xyz",
        "oci://host/" + "a" * 255,
        "hf://owner",
        "hf://datasets/o/r",
        "hf://token@o/r",
        "hf://o/..",
        "hf://o/r/..",
    ],
)
def test_storage_uri_is_refused_with_the_field_named(text: str) -> None:
    with pytest.raises(SpecInvalid, match=r"^spec\.model\.storageUri "):
        parse_storage_uri(text)


def test_refusal_does_not_repeat_the_uri() -> None:
    with pytest.raises(SpecInvalid) as caught:
        parse_storage_uri("s3://key:geheim@bucket/k")
    assert "geheim" not in str(caught.value)


def test_prefix_of_a_folder_matches_no_sibling() -> None:
    uri = parse_storage_uri("s3://bucket/llama/fp1")
    assert isinstance(uri, BucketUri)
    assert not "llama/fp16/config.json".startswith(uri.prefix)


SEGMENT = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,8}", fullmatch=True)
PATH = st.lists(SEGMENT, max_size=3).map("/".join)
TAIL = PATH.map(lambda path: f"/{path}" if path else "")
OCI_NAME = st.from_regex(r"[a-z0-9]{1,4}([._-][a-z0-9]{1,4})?(/[a-z0-9]{1,4})?", fullmatch=True)
URIS = st.one_of(
    st.builds(
        "{}://{}{}".format, st.sampled_from(["s3", "gs"]), st.from_regex(r"[a-z0-9]{3,20}", fullmatch=True), TAIL
    ),
    st.builds(
        "oci://{}/{}{}{}".format,
        st.from_regex(r"[a-z0-9]{1,8}(\.[a-z]{2,3})?(:[0-9]{1,5})?", fullmatch=True),
        OCI_NAME,
        st.sampled_from(["", ":v1.0", ":latest"]),
        st.sampled_from(["", f"@{DIGEST}"]),
    ),
    st.builds(
        "hf://{}{}/{}{}{}".format,
        st.sampled_from(["", "models/"]),
        st.from_regex(r"[A-Za-z0-9]{1,5}", fullmatch=True),
        st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,8}", fullmatch=True),
        st.sampled_from(
            ["", "@main", ":v1.0", "@refs/pr/3", "@refs/convert/parquet", "@refs", "@a%2Fb", "@refs%2Fpr%2F3"]
        ),
        TAIL,
    ),
)


@given(URIS)
def test_printing_and_parsing_again_gives_the_same_uri(text: str) -> None:
    uri = parse_storage_uri(text)
    assert parse_storage_uri(str(uri)) == uri
    assert str(parse_storage_uri(str(uri))) == str(uri)


@given(st.text(max_size=40).map(lambda rest: f"s3://{rest}") | st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        uri = parse_storage_uri(text)
    except SpecInvalid:
        return
    assert parse_storage_uri(str(uri)) == uri
