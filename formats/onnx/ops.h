/* The ops of ONNX that weft imports: one row for each, one function map_NAME for each, in the file
 * of its family. Columns: the name, the smallest and the largest number of inputs, and the largest
 * number of outputs. */
#ifndef WEFT_ONNX_OPS_H
#define WEFT_ONNX_OPS_H

#include "onnx/import.h"

#include <stdint.h>

#define ANY SIZE_MAX

/* clang-format off */
/* elementwise.c */
#define ONNX_ELEMENTWISE(X) \
    X(Abs, 1, 1, 1) X(Neg, 1, 1, 1) X(Sign, 1, 1, 1) X(Floor, 1, 1, 1) X(Ceil, 1, 1, 1) \
    X(Round, 1, 1, 1) X(Reciprocal, 1, 1, 1) X(Sqrt, 1, 1, 1) X(Exp, 1, 1, 1) X(Log, 1, 1, 1) \
    X(Sin, 1, 1, 1) X(Cos, 1, 1, 1) X(Tan, 1, 1, 1) X(Asin, 1, 1, 1) X(Acos, 1, 1, 1) \
    X(Atan, 1, 1, 1) X(Sinh, 1, 1, 1) X(Cosh, 1, 1, 1) X(Tanh, 1, 1, 1) X(Asinh, 1, 1, 1) \
    X(Acosh, 1, 1, 1) X(Atanh, 1, 1, 1) X(Erf, 1, 1, 1) X(Sigmoid, 1, 1, 1) X(Relu, 1, 1, 1) \
    X(Softplus, 1, 1, 1) X(Softsign, 1, 1, 1) X(LeakyRelu, 1, 1, 1) X(Elu, 1, 1, 1) \
    X(Celu, 1, 1, 1) X(Selu, 1, 1, 1) X(ThresholdedRelu, 1, 1, 1) X(HardSigmoid, 1, 1, 1) \
    X(HardSwish, 1, 1, 1) X(Mish, 1, 1, 1) X(Swish, 1, 1, 1) X(Gelu, 1, 1, 1) X(Shrink, 1, 1, 1) \
    X(Identity, 1, 1, 1) X(IsNaN, 1, 1, 1) X(IsInf, 1, 1, 1) X(Not, 1, 1, 1) X(Cast, 1, 1, 1) \
    X(Add, 2, 2, 1) X(Sub, 2, 2, 1) X(Mul, 2, 2, 1) X(Div, 2, 2, 1) X(Pow, 2, 2, 1) X(SwiGLU, 2, 2, 1) \
    X(Mod, 2, 2, 1) X(PRelu, 2, 2, 1) X(Equal, 2, 2, 1) X(Less, 2, 2, 1) \
    X(Greater, 2, 2, 1) X(LessOrEqual, 2, 2, 1) X(GreaterOrEqual, 2, 2, 1) X(And, 2, 2, 1) \
    X(Or, 2, 2, 1) X(Xor, 2, 2, 1) X(CastLike, 2, 2, 1) X(Max, 1, ANY, 1) X(Min, 1, ANY, 1) \
    X(Sum, 1, ANY, 1) X(Mean, 1, ANY, 1) X(Where, 3, 3, 1) X(Clip, 1, 3, 1)
/* bits.c */
#define ONNX_BITS(X) \
    X(BitShift, 2, 2, 1) X(BitwiseAnd, 2, 2, 1) X(BitwiseOr, 2, 2, 1) X(BitwiseXor, 2, 2, 1) \
    X(BitwiseNot, 1, 1, 1) X(BitCast, 1, 1, 1)
/* shape.c */
#define ONNX_SHAPE(X) \
    X(Reshape, 1, 2, 1) X(Squeeze, 1, 2, 1) X(Unsqueeze, 1, 2, 1) X(Flatten, 1, 1, 1) \
    X(Transpose, 1, 1, 1) X(DepthToSpace, 1, 1, 1) X(SpaceToDepth, 1, 1, 1) X(Expand, 2, 2, 1) \
    X(Tile, 2, 2, 1) X(Concat, 1, ANY, 1) X(Split, 1, 2, ANY) X(Slice, 1, 5, 1)
/* values.c */
#define ONNX_VALUES(X) \
    X(Shape, 1, 1, 1) X(Size, 1, 1, 1) X(Constant, 0, 0, 1) X(ConstantOfShape, 1, 1, 1) \
    X(Range, 3, 3, 1) X(EyeLike, 1, 1, 1) X(Trilu, 1, 2, 1)
/* pad.c */
#define ONNX_PAD(X) \
    X(Pad, 1, 4, 1) X(CenterCropPad, 2, 2, 1)
/* reduce.c */
#define ONNX_REDUCE(X) \
    X(ReduceSum, 1, 2, 1) X(ReduceMean, 1, 2, 1) X(ReduceMax, 1, 2, 1) X(ReduceMin, 1, 2, 1) \
    X(ReduceProd, 1, 2, 1) X(ReduceL1, 1, 2, 1) X(ReduceL2, 1, 2, 1) X(ReduceSumSquare, 1, 2, 1) \
    X(ReduceLogSum, 1, 2, 1) X(ReduceLogSumExp, 1, 2, 1) X(ArgMax, 1, 1, 1) X(ArgMin, 1, 1, 1) \
    X(Hardmax, 1, 1, 1) X(TopK, 1, 2, 2) X(CumSum, 2, 2, 1) X(CumProd, 2, 2, 1)
/* index.c */
#define ONNX_INDEX(X) \
    X(Gather, 2, 2, 1) X(GatherElements, 2, 2, 1) X(GatherND, 2, 2, 1) \
    X(ReverseSequence, 2, 2, 1) X(ScatterElements, 3, 3, 1) X(ScatterND, 3, 3, 1) \
    X(TensorScatter, 2, 3, 1) X(OneHot, 3, 3, 1)
/* select.c */
#define ONNX_SELECT(X) \
    X(NonZero, 1, 1, 1) X(Compress, 2, 2, 1) X(Unique, 1, 1, 4) X(NonMaxSuppression, 2, 5, 1) \
    X(TfIdfVectorizer, 1, 1, 1)
/* strings.c */
#define ONNX_STRINGS(X) \
    X(StringConcat, 2, 2, 1) X(StringSplit, 1, 1, 2) X(StringNormalizer, 1, 1, 1)
/* matrix.c */
#define ONNX_MATRIX(X) \
    X(MatMul, 2, 2, 1) X(Gemm, 2, 3, 1) X(Det, 1, 1, 1)
/* quantized.c */
#define ONNX_QUANTIZED(X) \
    X(QuantizeLinear, 2, 3, 1) X(DequantizeLinear, 2, 3, 1) X(DynamicQuantizeLinear, 1, 1, 3) \
    X(MatMulInteger, 2, 4, 1) X(QLinearMatMul, 8, 8, 1)
/* einsum.c */
#define ONNX_EINSUM(X) \
    X(Einsum, 1, ANY, 1)
/* nn.c */
#define ONNX_NN(X) \
    X(Softmax, 1, 1, 1) X(LogSoftmax, 1, 1, 1) X(MeanVarianceNormalization, 1, 1, 1) \
    X(LpNormalization, 1, 1, 1) X(LRN, 1, 1, 1) X(LayerNormalization, 2, 3, 3) \
    X(RMSNormalization, 2, 2, 1) \
    X(InstanceNormalization, 3, 3, 1) X(GroupNormalization, 3, 3, 1) \
    X(NegativeLogLikelihoodLoss, 2, 3, 1) X(SoftmaxCrossEntropyLoss, 2, 3, 2)
/* random.c */
#define ONNX_RANDOM(X) \
    X(RandomUniform, 0, 0, 1) X(RandomNormal, 0, 0, 1) X(RandomUniformLike, 1, 1, 1) \
    X(RandomNormalLike, 1, 1, 1) X(Bernoulli, 1, 1, 1) X(Dropout, 1, 3, 2)
/* attention.c */
#define ONNX_ATTENTION(X) \
    X(Attention, 3, 7, 4) X(RotaryEmbedding, 3, 4, 1)
/* linear_attention.c */
#define ONNX_LINEAR_ATTENTION(X) \
    X(LinearAttention, 3, 6, 2) X(CausalConvWithState, 2, 4, 2)
/* recurrent.c */
#define ONNX_RECURRENT(X) \
    X(RNN, 3, 6, 2) X(GRU, 3, 6, 2) X(LSTM, 3, 8, 3)
/* resize.c */
#define ONNX_RESIZE(X) \
    X(Resize, 1, 4, 1) X(Upsample, 1, 2, 1)
/* vision.c */
#define ONNX_VISION(X) \
    X(Conv, 2, 3, 1) X(ConvTranspose, 2, 3, 1) X(ConvInteger, 2, 4, 1) X(QLinearConv, 8, 9, 1) \
    X(MaxPool, 1, 1, 2) X(AveragePool, 1, 1, 1) X(LpPool, 1, 1, 1) X(GlobalAveragePool, 1, 1, 1) \
    X(GlobalMaxPool, 1, 1, 1) X(GlobalLpPool, 1, 1, 1)
/* sample.c */
#define ONNX_SAMPLE(X) \
    X(GridSample, 2, 2, 1) X(AffineGrid, 2, 2, 1) X(RoiAlign, 3, 3, 1) X(MaxUnpool, 2, 3, 1) \
    X(Col2Im, 3, 3, 1)
/* deform.c */
#define ONNX_DEFORM(X) \
    X(DeformConv, 3, 5, 1)
/* signal.c */
#define ONNX_SIGNAL(X) \
    X(HannWindow, 1, 1, 1) X(HammingWindow, 1, 1, 1) X(BlackmanWindow, 1, 1, 1) \
    X(MelWeightMatrix, 5, 5, 1) X(DFT, 1, 3, 1) X(STFT, 2, 4, 1)
/* optimizer.c, in the domain ai.onnx.preview.training */
#define ONNX_OPTIMIZER(X) \
    X(Adagrad, 5, ANY, ANY) X(Adam, 6, ANY, ANY) X(Momentum, 5, ANY, ANY)
/* classic.c, trees.c and strings.c, in the domain ai.onnx.ml */
#define ONNX_ML(X) \
    X(Scaler, 1, 1, 1) X(Normalizer, 1, 1, 1) X(Binarizer, 1, 1, 1) X(LabelEncoder, 1, 1, 1) \
    X(ArrayFeatureExtractor, 2, 2, 1) X(LinearRegressor, 1, 1, 1) X(LinearClassifier, 1, 1, 2) \
    X(TreeEnsemble, 1, 1, 1) X(TreeEnsembleRegressor, 1, 1, 1) \
    X(TreeEnsembleClassifier, 1, 1, 2)
/* qlinear.c, fused.c, vision.c and recurrent.c, in the domain com.microsoft */
#define ONNX_MICROSOFT(X) \
    X(QLinearAdd, 7, 8, 1) X(QLinearMul, 7, 8, 1) X(QLinearSigmoid, 4, 5, 1) \
    X(QLinearLeakyRelu, 4, 5, 1) X(QLinearWhere, 9, 9, 1) X(QLinearSoftmax, 4, 5, 1) \
    X(QLinearReduceMean, 4, 5, 1) X(QLinearGlobalAveragePool, 5, 5, 1) X(QLinearAveragePool, 4, 5, 1) X(QLinearConcat, 5, ANY, 1) \
    X(QGemm, 6, 9, 1) X(MatMulIntegerToFloat, 4, 7, 1) X(DynamicQuantizeMatMul, 3, 5, 1) \
    X(BiasGelu, 2, 2, 1) X(FastGelu, 1, 2, 1) X(QuickGelu, 1, 1, 1) \
    X(FusedMatMul, 2, 2, 1) X(FusedGemm, 2, 3, 1) X(FusedConv, 2, 4, 1) \
    X(SkipLayerNormalization, 3, 5, 4) X(SkipSimplifiedLayerNormalization, 3, 4, 4) \
    X(EmbedLayerNormalization, 1, 9, 3) X(Attention, 2, 7, 2) X(DynamicQuantizeLSTM, 3, 12, 3)
/* branch.c, control.c and sequence.c: these map bodies or work on lists of values, and are not
 * computed during the import themselves */
#define ONNX_CONTROL(X) \
    X(If, 1, 1, ANY) X(Loop, 0, ANY, ANY) X(Scan, 0, ANY, ANY) X(SequenceEmpty, 0, 0, 1) \
    X(SequenceConstruct, 1, ANY, 1) X(SequenceInsert, 2, 3, 1) X(SequenceErase, 1, 2, 1) \
    X(SequenceAt, 2, 2, 1) X(SequenceLength, 1, 1, 1) X(SplitToSequence, 1, 2, 1) \
    X(ConcatFromSequence, 1, 1, 1) X(SequenceMap, 1, ANY, ANY) X(Optional, 0, 1, 1) \
    X(OptionalGetElement, 0, 1, 1) X(OptionalHasElement, 0, 1, 1)
/* clang-format on */

#define ONNX_OPS(X)                                                                                \
    ONNX_ELEMENTWISE(X)                                                                            \
    ONNX_BITS(X)                                                                                   \
    ONNX_SHAPE(X)                                                                                  \
    ONNX_VALUES(X)                                                                                 \
    ONNX_PAD(X)                                                                                    \
    ONNX_REDUCE(X)                                                                                 \
    ONNX_INDEX(X)                                                                                  \
    ONNX_SELECT(X)                                                                                 \
    ONNX_STRINGS(X)                                                                                \
    ONNX_MATRIX(X)                                                                                 \
    ONNX_QUANTIZED(X)                                                                              \
    ONNX_EINSUM(X)                                                                                 \
    ONNX_ATTENTION(X)                                                                              \
    ONNX_LINEAR_ATTENTION(X)                                                                       \
    ONNX_NN(X)                                                                                     \
    ONNX_RANDOM(X)                                                                                 \
    ONNX_RECURRENT(X) ONNX_RESIZE(X) ONNX_VISION(X) ONNX_SAMPLE(X) ONNX_DEFORM(X) ONNX_SIGNAL(X)

#define ONNX_DECLARE(name, min_in, max_in, max_out) void weft__map_##name(onnx_node *n);
ONNX_OPS(ONNX_DECLARE)
ONNX_CONTROL(ONNX_DECLARE)
ONNX_OPTIMIZER(ONNX_DECLARE)
#undef ONNX_DECLARE
#define ONNX_DECLARE(name, min_in, max_in, max_out) void weft__microsoft_##name(onnx_node *n);
ONNX_MICROSOFT(ONNX_DECLARE)
#undef ONNX_DECLARE
#define ONNX_DECLARE(name, min_in, max_in, max_out) void weft__ml_##name(onnx_node *n);
ONNX_ML(ONNX_DECLARE)
#undef ONNX_DECLARE
void weft__map_BatchNormalization(onnx_node *n);
void weft__map_ExpandDims(onnx_node *n);
void weft__map_FlexAttention(onnx_node *n);
void weft__map_Gradient(onnx_node *n);
void weft__map_function(onnx_node *n);

/* alpha A' B' + beta C of a node Gemm (matrix.c). */
weft_value weft__gemm(onnx_node *n);
/* The function that an attribute "activation" names (fused.c), "" without it; its parameters. */
weft_value weft__fused_activation(onnx_node *n, weft_value y, const double parameters[2]);

/* ---- Ops of weft (recognise.c) ---- */

/* Builds the op of weft that the first n of these nodes represent, according to a note on the first
 * one. Returns n; 0 if there is no note or the nodes differ from those that weft writes. */
size_t weft__import_noted(onnx_import *import, onnx_scope *scope, WeftOnnx__NodeProto *const *nodes,
                          size_t count);

/* The mappings of this folder. */
extern const onnx_mappings weft__onnx_mappings;

#endif
