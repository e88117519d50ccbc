_pad = '_'
_letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
symbols = [_pad] + list('!\'(),.:;? -') + list(_letters)
