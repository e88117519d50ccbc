from .registry import create_model, list_models, register_model
from .resnet_cifar import *
from .mobilenet import *
from .convnext import *
from .densenet import *
from .shufflenet import *
from .efficientnet import *
