class Registry:
    def __init__(self, name):
        self.name = name
        self._modules = dict()

    def register_module(self):
        def _register(cls):
            self._modules[cls.__name__] = cls
            return cls
        return _register

    def build(self, cfg, **default_args):
        cfg = dict(cfg)
        kind = cfg.pop('type')
        return self._modules[kind](**{**default_args, **cfg})


BACKBONES = Registry('backbone')
NECKS = Registry('neck')
HEADS = Registry('head')
DETECTORS = Registry('detector')


def build_backbone(cfg):
    return BACKBONES.build(cfg)


def build_neck(cfg):
    return NECKS.build(cfg)


def build_head(cfg):
    return HEADS.build(cfg)


def build_detector(cfg):
    return DETECTORS.build(cfg)
