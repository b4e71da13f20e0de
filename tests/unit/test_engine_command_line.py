"""Command lines of the stub engines: what the real ones take and refuse."""

import pytest

from plnt.sandbox.engine.command_line import CommandLine, Engine, UsageInvalid, parse_options, recognise
from plnt.sandbox.engine.launch import read_launch


def parse(*command: str, **environ: str) -> CommandLine:
    found = recognise(command)
    assert found is not None
    return parse_options(*found, environ)


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        (["vllm", "serve", "/m"], Engine.VLLM),
        (["/usr/local/bin/vllm", "serve", "/m"], Engine.VLLM),
        (["python3", "-m", "sglang.launch_server", "--model-path", "/m"], Engine.SGLANG),
        (["text-generation-launcher"], Engine.TGI),
        (["trtllm-serve", "/m"], Engine.TRTLLM),
        (["trtllm-serve", "serve", "/m"], Engine.TRTLLM),
    ],
)
def test_command_is_recognised_by_its_program(command: list[str], engine: Engine) -> None:
    found = recognise(command)
    assert found is not None
    assert found[0] is engine


@pytest.mark.parametrize("command", [[], ["bash", "-c", "vllm serve"], ["vllm", "bench"], ["python3", "x.py"]])
def test_other_command_is_no_engine(command: list[str]) -> None:
    assert recognise(command) is None


@pytest.mark.parametrize(
    "command",
    [
        ["vllm", "serve", "/m", "--model-path", "/m"],
        ["vllm", "serve", "/m", "--dtype", "fp16"],
        ["python3", "-m", "sglang.launch_server", "--model-path", "/m", "--shutdown-timeout", "3"],
        ["text-generation-launcher", "--model-id", "/m", "--host", "0.0.0.0"],
        ["trtllm-serve", "/m", "--tp-size", "2"],
    ],
    ids=["other engine's flag", "value outside the choices", "flag of vLLM", "host is hostname", "dash for underscore"],
)
def test_flag_that_the_engine_lacks_is_refused(command: list[str]) -> None:
    with pytest.raises(UsageInvalid, match="error: "):
        parse(*command)


def test_vllm_takes_underscores_and_parts_of_json_values() -> None:
    line = parse("vllm", "serve", "/m", "--served_model_name", "a", "b", "--compilation-config.mode", "3")
    assert line.options["--served-model-name"] == ("a", "b")
    assert line.positionals == ("/m",)


def test_tgi_reads_variables_and_a_flag_wins_over_them() -> None:
    line = parse("text-generation-launcher", "--port", "8000", PORT="80", MODEL_ID="/data/m", TRUST_REMOTE_CODE="true")
    launch = read_launch(line, {"PLNT_STUB_LISTEN": "127.9.0.1"})
    assert (launch.port, str(launch.model), launch.host) == (8000, "/data/m", "127.9.0.1")
    assert line.has("--trust-remote-code")


def test_tgi_binds_all_interfaces_when_the_hostname_is_a_pods_name() -> None:
    environ = {"MODEL_ID": "/m", "HOSTNAME": "pod-1", "PLNT_STUB_LISTEN": "127.9.0.1"}
    line = parse_options(Engine.TGI, [], environ)
    assert read_launch(line, environ).host == "127.9.0.1"


@pytest.mark.parametrize(
    ("command", "host"),
    [
        (["vllm", "serve", "/m"], "127.9.0.1"),
        (["python3", "-m", "sglang.launch_server", "--model-path", "/m"], "localhost"),
        (["python3", "-m", "sglang.launch_server", "--model-path", "/m", "--host", "0.0.0.0"], "127.9.0.1"),
        (["trtllm-serve", "/m"], "localhost"),
        (["trtllm-serve", "/m", "--host", "10.9.0.1"], "127.9.0.1"),
    ],
)
def test_engine_that_binds_its_loopback_by_default_must_be_told_otherwise(command: list[str], host: str) -> None:
    assert read_launch(parse(*command), {"PLNT_STUB_LISTEN": "127.9.0.1"}).host == host


def test_names_are_those_that_clients_of_the_real_engine_see() -> None:
    environ = {"PLNT_STUB_MOUNTS": '{"/cache/trees/ab": "/models/llama"}'}
    assert read_launch(parse("vllm", "serve", "/cache/trees/ab"), environ).names == ("/models/llama",)
    assert read_launch(parse("trtllm-serve", "/cache/trees/ab"), environ).names == ("llama",)
    named = parse("trtllm-serve", "/cache/trees/ab", "--served_model_name", "org/llama")
    assert read_launch(named, environ).names == ("org/llama",)
    assert read_launch(parse("text-generation-launcher", "--model-id", "/cache/trees/ab/x"), environ).names == (
        "/models/llama/x",
    )


def test_tgi_refuses_dtype_together_with_quantize() -> None:
    line = parse("text-generation-launcher", "--model-id", "/m", "--dtype", "float16", "--quantize", "awq")
    with pytest.raises(UsageInvalid, match="cannot be used with"):
        read_launch(line, {})
