"""What every level of the settings is made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from relay.settings import rules

Number = Annotated[float, BeforeValidator(rules.not_a_bool)]
Whole = Annotated[int, BeforeValidator(rules.not_a_bool)]


def field(
    default: Any, unit: str, description: str, *, ge: float | None = None, le: float | None = None
) -> Any:
    """Make a field with all that its documentation needs; `unit` is empty for a field that is not a
    quantity."""
    return Field(
        default,
        description=description,
        ge=ge,
        le=le,
        validate_default=True,
        json_schema_extra={"unit": unit},
    )


class Section(BaseModel):
    """The base of every level of the tree."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)
