from .builder import BACKBONES, DETECTORS, HEADS, NECKS, build_detector
from . import backbones, heads, necks, detector
