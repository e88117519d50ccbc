# Übersetzung Deutsch -> Englisch, GRU mit additiver Aufmerksamkeit
import random
import torch
import torch.nn as nn


class Kodierer(nn.Module):
    def __init__(self, src_vocab, emb, hid):
        super().__init__()
        self.einbettung = nn.Embedding(src_vocab, emb, padding_idx=0)
        self.rnn = nn.GRU(emb, hid, bidirectional=True, batch_first=True)
        self.bruecke = nn.Linear(2 * hid, hid)

    def forward(self, saetze):
        werte = self.einbettung(saetze)
        ausgaben, zustand = self.rnn(werte)
        # beide Richtungen zusammenlegen
        beide = torch.cat([zustand[-2], zustand[-1]], dim=-1)
        return ausgaben, torch.tanh(self.bruecke(beide))


class Aufmerksamkeit(nn.Module):
    def __init__(self, hid):
        super().__init__()
        self.w = nn.Linear(3 * hid, hid)
        self.v = nn.Linear(hid, 1, bias=False)

    def forward(self, zustand, ausgaben, maske):
        laenge = ausgaben.size(1)
        wiederholt = zustand.unsqueeze(1).expand(-1, laenge, -1)
        energie = torch.tanh(self.w(torch.cat([wiederholt, ausgaben], dim=2)))
        punkte = self.v(energie).squeeze(2)
        punkte = punkte.masked_fill(~maske, -1e9)
        return punkte.softmax(dim=1)


class Dekodierer(nn.Module):
    def __init__(self, trg_vocab, emb, hid):
        super().__init__()
        self.einbettung = nn.Embedding(trg_vocab, emb)
        self.aufmerksamkeit = Aufmerksamkeit(hid)
        self.zelle = nn.GRUCell(emb + 2 * hid, hid)
        self.aus = nn.Linear(hid + 2 * hid + emb, trg_vocab)

    def forward(self, wort, zustand, ausgaben, maske):
        e = self.einbettung(wort)
        gewichte = self.aufmerksamkeit(zustand, ausgaben, maske)
        kontext = torch.bmm(gewichte.unsqueeze(1), ausgaben).squeeze(1)
        zustand = self.zelle(torch.cat([e, kontext], dim=1), zustand)
        return self.aus(torch.cat([zustand, kontext, e], dim=1)), zustand, gewichte


class Uebersetzer(nn.Module):
    def __init__(self, src_vocab, trg_vocab, emb, hid):
        super().__init__()
        self.kodierer = Kodierer(src_vocab, emb, hid)
        self.dekodierer = Dekodierer(trg_vocab, emb, hid)

    def forward(self, src, trg, teacher_forcing=0.5):
        ausgaben, zustand = self.kodierer(src)
        maske = src != 0
        wort = trg[:, 0]
        schritte = []
        for t in range(1, trg.size(1)):
            logits, zustand, _ = self.dekodierer(wort, zustand, ausgaben, maske)
            schritte.append(logits)
            wort = trg[:, t] if random.random() < teacher_forcing else logits.argmax(-1)
        return torch.stack(schritte, dim=1)
