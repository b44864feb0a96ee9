"""All scenes, in the order in which they are played."""

from relay.conformance.scene import Scene
from relay.conformance.scenes import breaks, ends, handling, newer, outcomes, pushed, scheduling

SCENES: tuple[Scene, ...] = (
    *handling.SCENES,
    *outcomes.SCENES,
    *ends.SCENES,
    *breaks.SCENES,
    *newer.SCENES,
    *scheduling.SCENES,
    *pushed.SCENES,
)
