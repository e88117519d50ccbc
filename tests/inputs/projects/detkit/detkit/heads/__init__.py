from .retina_head import RetinaHead
