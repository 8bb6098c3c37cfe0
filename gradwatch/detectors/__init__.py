"""What can go wrong in a training run, one detector a file."""

from gradwatch.detectors.base import Detector
from gradwatch.detectors.nonfinite import NonFinite
from gradwatch.detectors.norm_spike import NormSpike
from gradwatch.detectors.reward_collapse import RewardCollapse
from gradwatch.detectors.val_cliff import ValCliff

DETECTORS: tuple[Detector, ...] = (NonFinite(), NormSpike(), RewardCollapse(), ValCliff())

__all__ = ["DETECTORS", "Detector"]
