"""The reference repair: from a plain fp32 step to a fast one, rung by rung, for models of BERT-base's and GPT-2's size.

reference_repair.table("gpt2")     # time and peak memory of a step, rung by rung
reference_repair.ladders()         # both and the capstone's, as times and shares of the plain step, and what the sources promise
reference_repair.measured_once("gpt2")      # on two cores, once, at a reduced size: each rung beside the plain step
"""

from typing import TYPE_CHECKING

from helpers import lazy

if TYPE_CHECKING:
    from helpers.lessons.capstone.reference_repair.on_cpu import losses as losses
    from helpers.lessons.capstone.reference_repair.on_cpu import measured_once as measured_once
    from helpers.lessons.capstone.reference_repair.shown import NAMES as NAMES
    from helpers.lessons.capstone.reference_repair.shown import evidence as evidence
    from helpers.lessons.capstone.reference_repair.shown import ladders as ladders
    from helpers.lessons.capstone.reference_repair.shown import scored as scored
    from helpers.lessons.capstone.reference_repair.shown import simulated as simulated
    from helpers.lessons.capstone.reference_repair.shown import table as table

__getattr__, __dir__, __all__ = lazy.attach(__name__)
