"""Series with a range, and values that come in place of readings, each with where it was seen or stands."""

SERIES = (
    # In percent (NVML 13.0, nvmlUtilization_t; Alibaba's and AMD's documents).
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"),
    *("DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_FAN_SPEED"),
    *("DCGM_CUSTOM_PROCESS_SM_UTIL", "DCGM_CUSTOM_PROCESS_MEM_COPY_UTIL"),
    *("DCGM_CUSTOM_PROCESS_ENCODE_UTIL", "DCGM_CUSTOM_PROCESS_DECODE_UTIL"),
    *("gpu_gfx_activity", "gpu_umc_activity", "gpu_process_cu_occupancy"),
    # Ratios (NVIDIA DCGM 4, Profiling Metrics; the names of dcgm-exporter 4.9).
    *("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_OCCUPANCY"),
    *("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"),
    *("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "DCGM_FI_PROF_PIPE_FP32_ACTIVE"),
    *("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "DCGM_FI_PROF_NVDEC0_ACTIVE"),
    *("DCGM_FI_DEV_GPU_UTIL_RATIO", "DCGM_FI_DEV_MEMORY_UTIL_RATIO"),
    *("DCGM_FI_PROF_SM_UTIL_RATIO", "DCGM_FI_DEV_FB_USED_RATIO", "DCGM_FI_DEV_FB_USED_PERCENT"),
    *("DCGM_CUSTOM_CONTAINER_CP_ALLOCATED", "DCGM_CUSTOM_DEV_FB_ALLOCATED"),
    *("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "vllm:cpu_cache_usage_perc"),
    *("sglang:token_usage", "nv_gpu_utilization"),
    # MiB, MHz and W (dcgm-exporter 4.8, etc/default-counters.csv).
    *("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_CUSTOM_PROCESS_MEM_USED"),
    *("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_POWER_USAGE"),
    "DCGM_FI_DEV_POWER_USAGE_INSTANT",
)
CORRUPTIONS = {
    "all ones": 4294967295.0,  # nvml.h, NVML_VALUE_NOT_AVAILABLE
    "half read": 808334905.0,  # dcgm-exporter issue 418
    "blank of 64 bits": float(0x7FFFFFFFFFFFFFF2),  # dcgm_structs.h, DCGM_INT64_NOT_SUPPORTED
    "blank of 32 bits": float(0x7FFFFFF0),  # dcgm_structs.h, DCGM_INT32_BLANK
    "blank of a double": 140737488355328.0,  # dcgm_structs.h, DCGM_FP64_BLANK
    "minus one": -1.0,
}
POSSIBLE = 0.5
