"""`gpuscale calibrate`: one replica's capacity, and the signal value that shows it."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.load.calibrate import report, writing
    from gpuscale.load.calibrate.analysis import Analysis, Measurements
    from gpuscale.load.calibrate.levels import Objective
    from gpuscale.load.calibrate.page import render_page
    from gpuscale.load.calibrate.ramp import RampSettings
    from gpuscale.load.calibrate.scaleout import LoadStep, ScaleOutCourse, predict_step
else:
    __getattr__ = door(__name__)

__all__ = [
    "Analysis",
    "LoadStep",
    "Measurements",
    "Objective",
    "RampSettings",
    "ScaleOutCourse",
    "predict_step",
    "render_page",
    "report",
    "writing",
]
