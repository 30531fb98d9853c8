"""What can go wrong for a reason its user can mend.

    LakehouseError            one clear sentence or two for the user
    |- SettingsError          a setting, option or topic file is wrong
    |- BrokerError            the broker is absent or refuses
    |- DataLossError          messages are gone that were not read yet
    `- CheckpointError        checkpoint, table and topic do not belong together

Each message says where, what, what it means and what to do.
"""


class LakehouseError(Exception):
    """An error whose message is meant for the user: shown alone, without a traceback.

    may_pass: whether it may be gone a while later, with nothing mended here.
    """

    exit_code = 2
    may_pass = False


class SettingsError(LakehouseError):
    """A setting, option or topic file is wrong."""


class BrokerError(LakehouseError):
    """The broker cannot be reached, or refuses what was asked."""

    may_pass = True


class DataLossError(LakehouseError):
    """Messages that bronze has not read are gone from the broker."""


class CheckpointError(LakehouseError):
    """A checkpoint, a table and a topic do not belong together."""
