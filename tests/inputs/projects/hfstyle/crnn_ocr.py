# 文字識別 CRNN
import torch.nn as nn


class BidirectionalLSTM(nn.Module):
    def __init__(self, nIn, nHidden, nOut):
        super(BidirectionalLSTM, self).__init__()
        self.rnn = nn.LSTM(nIn, nHidden, bidirectional=True)
        self.embedding = nn.Linear(nHidden * 2, nOut)

    def forward(self, input):
        recurrent, _ = self.rnn(input)
        T, b, h = recurrent.size()
        t_rec = recurrent.view(T * b, h)
        output = self.embedding(t_rec)
        return output.view(T, b, -1)


class OCRNet(nn.Module):
    def __init__(self, imgH, nc, nclass, nh):
        super(OCRNet, self).__init__()
        assert imgH % 16 == 0, 'imgH has to be a multiple of 16'
        cnn, chans = nn.Sequential(), [nc, 32, 64, 128, 128]
        for i in range(4):
            cnn.add_module('conv%d' % i, nn.Conv2d(chans[i], chans[i + 1], 3, 1, 1))
            cnn.add_module('relu%d' % i, nn.ReLU(True))
            cnn.add_module('pool%d' % i, nn.MaxPool2d(2, 2) if i < 2 else nn.MaxPool2d((2, 2), (2, 1), (0, 1)))
        cnn.add_module('last', nn.Conv2d(128, 128, (imgH // 16, 1)))
        self.cnn = cnn
        self.rnn = nn.Sequential(BidirectionalLSTM(128, nh, nh), BidirectionalLSTM(nh, nh, nclass))

    def forward(self, input):
        conv = self.cnn(input)
        b, c, h, w = conv.size()
        assert h == 1, "the height of conv must be 1"
        conv = conv.squeeze(2)
        conv = conv.permute(2, 0, 1)  # [w, b, c]
        return self.rnn(conv)
