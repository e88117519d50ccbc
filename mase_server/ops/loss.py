"""Losses, for each element of the input: squared or absolute errors 3 (subtract, square, add), those with a
logarithm 5, cross entropy on scores 6 (log-softmax 5, pick 1), hinge losses 3; triplet losses 8 (two distances).
"""

from __future__ import annotations

from mase_server.ops.costs import argument, each_input, input_elements
from mase_server.ops.rows import rows
from mase_server.ops.types import OpCall


def linear_cross_entropy(call: OpCall) -> int:
    """A linear layer to the classes (2 * tokens * features * classes), then cross entropy over its scores."""
    classes = int(argument(call, 1, "linear_weight").shape[0]) if call.module is None else _classes(call)
    features = input_elements(call)
    width = int(argument(call, 0, "input").shape[-1])
    return 2 * features * classes + 6 * (features // width) * classes


def _classes(call: OpCall) -> int:
    return max(int(p.shape[0]) for p in call.module.parameters()) if call.module is not None else 0


ROWS = (
    *rows("loss", each_input(3), "mse_loss:MSELoss l1_loss:L1Loss smooth_l1_loss:SmoothL1Loss huber_loss:HuberLoss"),
    *rows(
        "loss",
        each_input(5),
        """binary_cross_entropy:BCELoss binary_cross_entropy_with_logits:BCEWithLogitsLoss kl_div:KLDivLoss
        poisson_nll_loss:PoissonNLLLoss gaussian_nll_loss:GaussianNLLLoss soft_margin_loss:SoftMarginLoss
        multilabel_soft_margin_loss:MultiLabelSoftMarginLoss ctc_loss:CTCLoss miopen_ctc_loss""",
    ),
    *rows("loss", each_input(6), "cross_entropy:CrossEntropyLoss"),
    *rows(
        "loss",
        each_input(3),
        """nll_loss=nll_loss:NLLLoss,NLLLoss2d margin_ranking_loss:MarginRankingLoss
        hinge_embedding_loss:HingeEmbeddingLoss multi_margin_loss:MultiMarginLoss
        multilabel_margin_loss:MultiLabelMarginLoss""",
    ),
    *rows(
        "loss",
        each_input(8),
        """cosine_embedding_loss:CosineEmbeddingLoss triplet_margin_loss:TripletMarginLoss
        triplet_margin_with_distance_loss:TripletMarginWithDistanceLoss""",
    ),
    *rows("loss", linear_cross_entropy, "linear_cross_entropy:LinearCrossEntropyLoss"),
)
