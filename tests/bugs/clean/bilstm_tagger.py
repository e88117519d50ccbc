import torch
import torch.nn as nn


class BiLSTMTagger(nn.Module):
    def __init__(self, vocab_size=1000, embedding_dim=50, hidden_dim=64, tagset_size=9):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.dropout = nn.Dropout(0.3)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.hidden2tag = nn.Linear(hidden_dim * 2, tagset_size)

    def forward(self, sentence):
        embeds = self.dropout(self.word_embeddings(sentence))
        lstm_out, _ = self.lstm(embeds)
        tag_space = self.hidden2tag(lstm_out)
        return torch.log_softmax(tag_space, dim=-1)
