#!/usr/bin/env python3
"""Writes the cases of tests/golden/onnx/node: ops and opsets newer than Debian's libonnx-testdata.

The models, inputs and outputs are those of the onnx package, whose reference implementation computes
them. Run in an environment with onnx (made with 1.23.2):

    python tests/golden/make_onnx_cases.py tests/golden/onnx

build/tests/onnx_conformance tests/golden/onnx runs them. With --all, it writes all cases of the package into another
folder, to see how many pass:

    python tests/golden/make_onnx_cases.py /tmp/cases --all
    build/tests/onnx_conformance /tmp/cases
"""
import pathlib
import shutil
import sys

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import model, node

NAMES = """
affine_grid_2d affine_grid_3d_align_corners ai_onnx_ml_array_feature_extractor ai_onnx_ml_binarizer
ai_onnx_ml_label_encoder_tensor_mapping ai_onnx_ml_tree_ensemble_set_membership
attention_3d attention_3d_attn_mask attention_3d_gqa_causal
attention_4d_attn_mask_bool_4d attention_4d_causal attention_4d_diff_heads_mask4d_padded_kv
attention_4d_gqa_softcap attention_4d_causal_nonpad_batch_prefill attention_4d_softcap
attention_4d_with_qk_matmul_bias attention_4d_with_qk_matmul_softmax
bitcast_2d_float32_to_int32 bitcast_int8_to_uint8 bitshift_left_int32_overflow bitshift_right_int8_negative_shift bitwise_and_i32_2d bitwise_not_4d
bitwise_or_i16_4d bitwise_xor_ui8_bcast_4v3d
cast_FLOAT16_to_FLOAT4E2M1 cast_FLOAT4E2M1_to_FLOAT cast_FLOAT8E5M2FNUZ_to_FLOAT16 cast_FLOAT_to_FLOAT8E4M3FN
cast_FLOAT_to_FLOAT8E4M3FNUZ cast_FLOAT_to_INT4 cast_UINT2_to_FLOAT16 cast_e8m0_FLOAT8E8M0_to_FLOAT
cast_e8m0_FLOAT_to_FLOAT8E8M0 cast_no_saturate_FLOAT_to_FLOAT8E4M3FN cast_no_saturate_FLOAT_to_FLOAT8E5M2
castlike_no_saturate_FLOAT16_to_FLOAT8E5M2FNUZ causal_conv_with_state_silu_with_past_state
center_crop_pad_crop_and_pad center_crop_pad_crop_axes_hwc col2im_5d col2im_dilations col2im_strides
cumprod_1d_reverse_exclusive cumprod_2d_axis_1 deform_conv_with_mask_bias
deform_conv_with_multiple_offset_groups dequantizelinear_blocked dequantizelinear_e4m3fn_zero_point
dequantizelinear_float4e2m1 dequantizelinear_int4 dft_irfft dft_opset19 equal_string
flexattention_causal_mask flexattention_prob_mod
gridsample_bicubic_align_corners_0_additional_1 gridsample_volumetric_bilinear_align_corners_1
gridsample_volumetric_nearest_align_corners_0 l2normalization_axis_0
linear_attention_gated_delta_beta_scalar linear_attention_gated_per_head_decay
mod_float32_mixed_sign_fmod_0 mod_float_edge_cases_fmod_0_float32
optional_get_element_tensor optional_has_element_empty_no_input_name_tensor_input
quantizelinear_blocked_asymmetric quantizelinear_blocked_symmetric quantizelinear_e5m2
quantizelinear_float4e2m1 quantizelinear_uint4 reduce_max_empty_set_bool
resize_downsample_scales_cubic_antialias resize_downsample_scales_linear_antialias
resize_downsample_scales_linear_half_pixel_symmetric resize_downsample_sizes_nearest_not_smaller
resize_tf_crop_and_resize_axes_3_2 resize_upsample_sizes_nearest_not_larger
rms_normalization_3d_axis1_epsilon rms_normalization_4d_axis_negative_1
roialign_mode_max rotary_embedding rotary_embedding_3d_input rotary_embedding_interleaved
rotary_embedding_no_position_ids_rotary_dim rotary_embedding_with_rotary_dim
scatter_elements_with_reduction_max scatter_elements_with_reduction_mul scatternd_max scatternd_min
spacetodepth_crd_mode_example string_concat_broadcasting string_split_maxsplit strnormalizer_export_monday_empty_output
strnormalizer_export_monday_insensintive_upper_twodim swiglu_alpha swish tensorscatter tensorscatter_circular
""".split()


def message(value, info):
    """An input or output as the message that its file has."""
    if hasattr(value, "SerializeToString"):
        return value
    convert = {"sequence_type": numpy_helper.from_list, "optional_type": numpy_helper.from_optional,
               "map_type": numpy_helper.from_dict}.get(info.type.WhichOneof("value"))
    return convert(value, info.name) if convert else numpy_helper.from_array(numpy.asarray(value), info.name)


def write(folder, case):
    folder.mkdir(parents=True)
    onnx.save(case.model, folder / "model.onnx")
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        graph = case.model.graph
        for kind, values, infos in ("input", inputs, graph.input), ("output", outputs, graph.output):
            for i, value in enumerate(values):
                (data / f"{kind}_{i}.pb").write_bytes(message(value, infos[i]).SerializeToString())


def write_all(root):
    """Cases of nodes and small models, and those that the package has as files."""
    for kind, cases in ("node", node.collect_testcases(None)), ("simple", model.collect_testcases()):
        for case in cases:
            if case.kind == kind:
                write(root / kind / case.name, case)
    files = pathlib.Path(onnx.__file__).parent / "backend/test/data"
    for kind in "pytorch-converted", "pytorch-operator":
        shutil.copytree(files / kind, root / kind)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    if sys.argv[2:] == ["--all"]:
        write_all(root)
        return
    shutil.rmtree(root / "node", ignore_errors=True)
    cases = {case.name: case for case in node.collect_testcases(None)}
    for name in NAMES:
        write(root / "node" / f"test_{name}", cases[f"test_{name}"])


main()
