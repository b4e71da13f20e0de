"""A stub inference engine that takes a real engine's command line: ``python -m plnt.sandbox.engine COMMAND...``.

It behaves as the named engine does where plnt depends on it: flags, model folder, streamed chunks, metrics,
health, end. What the model "is like" comes from ``stub.json`` in the model folder (see ``behaviour``).
Only aiohttp and the standard library are imported, so that a start takes less than half a second.

Environment, set by the kubelet stand-in; everything else is what the real engine reads:
``PLNT_STUB_LISTEN`` (address to bind when told all interfaces), ``PLNT_STUB_GPUS`` (GPUs of the container),
``PLNT_STUB_MOUNTS`` (JSON object: folder here -> path that the container sees), ``PLNT_STUB_LOADS`` (file that
gets one JSON line ``{"pod", "model", "at"}`` per loaded model), ``POD_NAME`` (sent as header ``X-Plnt-Pod``).
"""
