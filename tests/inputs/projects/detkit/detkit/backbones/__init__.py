from .darknet import Darknet
