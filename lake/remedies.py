"""Remedies for errors of `pulsar_spark`, which itself knows only Spark options.

Imports nothing heavy, because every command line uses it.
"""

REMEDIES = {
    "pulsar_spark.errors.DataLossError": (
        "In the lakehouse, LAKEHOUSE_ACCEPT_DATA_LOSS=true records the loss and continues, and "
        "`lakehouse reset` starts over."
    ),
    "pulsar_spark.broker.admin.TopicNotFoundError": (
        "`lakehouse create-topics` creates the topics of the topic file."
    ),
}


def with_remedy(kind: str, message: str) -> str:
    """The message of an error, with the remedy for errors of its class, if there is one.

    Args:
        kind: the full name of the error's class.
        message: the message.
    """
    return f"{message} {REMEDIES.get(kind, '')}".rstrip()


def said(error: BaseException) -> str:
    """The message of an error, with the remedy for errors of its class, if there is one."""
    return with_remedy(f"{type(error).__module__}.{type(error).__qualname__}", str(error))
