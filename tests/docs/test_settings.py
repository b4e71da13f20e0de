"""The settings table in the documentation and the settings of the code are one."""

import re
from pathlib import Path

from plnt.settings import BridgeSettings, ControlSettings, PoolSettings

TABLE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"


def test_settings_table_lists_each_setting_with_its_default() -> None:
    documented = dict(re.findall(r"^\| `([A-Z][A-Z0-9_]+)` \|([^|]*)\|", TABLE.read_text(), re.MULTILINE))
    fields = {f.alias: f for s in (BridgeSettings, ControlSettings, PoolSettings) for f in s.model_fields.values()}
    assert set(documented) == set(fields)
    for name, field in fields.items():
        if isinstance(field.default, (int, float, str)) and field.default != "":
            assert documented[name].strip(" `") == str(field.default), name
