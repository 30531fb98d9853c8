"""An endpoint with roles, as its owner asks it."""

from pathlib import Path

from lake.settings.settings import LakeSettings
from lakehouse.runtime.ports import free_port

PASSWORD = "a dozen of letters"  # noqa: S105 - nobody's  # pragma: allowlist secret


def asked_by_owner(settings: LakeSettings, folder: Path) -> LakeSettings:
    """Return the settings of an endpoint with passwords, and of Olga, who asks it."""
    (folder / "password").touch(mode=0o600)
    (folder / "password").write_text(PASSWORD)
    own = {
        "sql_port": free_port(),
        "sql_authentication": "password",
        "sql_users_file": folder / "users",
        "sql_user": "olga",
        "sql_password_file": folder / "password",
    }
    return settings.model_copy(update=own)
