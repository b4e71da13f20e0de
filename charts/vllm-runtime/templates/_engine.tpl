{{/* What `vllm serve` wants; flags of vLLM 0.33. */}}

{{- define "engine.tag" -}}v{{ .Chart.AppVersion }}{{- end -}}

{{- define "engine.command" -}}
- vllm
- serve
{{- end -}}

{{/*
A quantization flag only for weights that are quantized while they load: vLLM reads the rest from the checkpoint and
refuses a flag that differs. The drain lets streams in flight end after SIGTERM; without it they are cut at once.
*/}}
{{- define "engine.args" -}}
- {{ include "runtime.literal" .Values.weights.mountPath }}
- --served-model-name
- {{ include "runtime.literal" (required "model.name: the name that clients ask for" .Values.model.name) }}
- --host
- 0.0.0.0
- --port
- "8000"
- --tensor-parallel-size
- {{ int64 .Values.resources.gpu | toString | quote }}
- --shutdown-timeout
- {{ int64 .Values.shutdownTimeoutSeconds | toString | quote }}
{{- if eq .Values.quantization "fp8" }}
- --quantization
- fp8_per_tensor
{{- end }}
{{- end -}}

{{- define "engine.reserved" -}}
--model --served-model-name --host --port --uds --tensor-parallel-size -tp --shutdown-timeout --quantization -q
{{- end -}}

{{/* Weights come from the cache alone; the image's own home is not writable for every user. */}}
{{- define "engine.env" -}}
- {name: HOME, value: /home/engine}
- {name: USER, value: engine}
- {name: HF_HOME, value: /home/engine/huggingface}
- {name: HF_HUB_OFFLINE, value: "1"}
- {name: TRANSFORMERS_OFFLINE, value: "1"}
- {name: VLLM_NO_USAGE_STATS, value: "1"}
- {name: VLLM_CACHE_ROOT, value: /home/engine/vllm}
- {name: TORCHINDUCTOR_CACHE_DIR, value: /home/engine/inductor}
- {name: TRITON_CACHE_DIR, value: /home/engine/triton}
- {name: VLLM_ENGINE_READY_TIMEOUT_S, value: {{ int64 .Values.startupBudgetSeconds | toString | quote }}}
{{- end -}}

{{- define "engine.reservedEnv" -}}VLLM_PORT{{- end -}}

{{- define "engine.readiness" -}}/health{{- end -}}

{{- define "engine.liveness" -}}/health{{- end -}}

{{- define "engine.livenessTimeout" -}}10{{- end -}}

{{- define "engine.leastDrain" -}}0{{- end -}}

{{- define "engine.files" -}}{{- end -}}
