_model_entrypoints = {}


def register_model(fn):
    name = fn.__name__
    if name in _model_entrypoints:
        raise ValueError(f"{name} registered twice")
    _model_entrypoints[name] = fn
    return fn


def list_models():
    return sorted(_model_entrypoints)


def create_model(name, pretrained=False, **kwargs):
    if name not in _model_entrypoints:
        raise RuntimeError(f"Unknown model ({name})")
    return _model_entrypoints[name](pretrained=pretrained, **kwargs)
