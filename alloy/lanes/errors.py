"""What the compiler refuses, and why."""

from __future__ import annotations


class LanesError(Exception):
    """A function that `alloy.lanes` cannot compile."""


class UnsupportedOperator(LanesError, NotImplementedError):
    """An operator outside the table; names it and the line of the user's source that calls it."""

    def __init__(self, operator: str, source: str, detail: str = "") -> None:
        """Say what was found where, and what to do."""
        self.operator, self.source, self.detail = operator, source, detail
        text = f"lanes cannot compile {operator}"
        text += f" ({detail})" if detail else ""
        text += f", called at {source}" if source else ""
        text += ". Rewrite it with supported operators, or run this function in torch."
        super().__init__(text)


class OverBudget(LanesError):
    """A program with more statements than its budget."""

    def __init__(self, statements: int, budget: int, name: str) -> None:
        """Keep the counts for the caller's fallback."""
        self.statements, self.budget = statements, budget
        super().__init__(
            f"{name} has {statements} scalar statements, over its budget of {budget}. "
            "Raise budget=, simplify the model, or use the reference engine."
        )
