"""The error of a rule that compares declarations, and knows which of them is wrong."""


class Misplaced(ValueError):
    """An error that a rule has found at one place of a topic file.

    Args:
        place: the keys that lead there, such as `("joins", "paid", "on")`.
        what: what is wrong there, and what to do.
    """

    def __init__(self, place: tuple[str, ...], what: str) -> None:
        super().__init__(what)
        self.place = place
