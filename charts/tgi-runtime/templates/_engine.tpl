{{/* What text-generation-launcher wants; flags of Text Generation Inference 3.3.7. */}}

{{- define "engine.tag" -}}{{ .Chart.AppVersion }}{{- end -}}

{{/* Not the image's entrypoint: its shell splits arguments at blanks. */}}
{{- define "engine.command" -}}
- text-generation-launcher
{{- end -}}

{{/*
There is no flag for the served name: any model name in a request is answered. A quantization flag only for weights
that are quantized while they load; for others it would win over the checkpoint.
*/}}
{{- define "engine.args" -}}
{{- $_ := required "model.name: the name that clients ask for" .Values.model.name -}}
- --model-id
- {{ include "runtime.literal" .Values.weights.mountPath }}
- --hostname
- 0.0.0.0
- --port
- "8000"
- --num-shard
- {{ int64 .Values.resources.gpu | toString | quote }}
{{- if eq .Values.quantization "fp8" }}
- --quantize
- fp8
{{- end }}
{{- end -}}

{{- define "engine.reserved" -}}
--model-id --hostname --port --num-shard --sharded --quantize
{{- end -}}

{{/* The router looks for the exact string "1" in HF_HUB_OFFLINE. */}}
{{- define "engine.env" -}}
- {name: HOME, value: /home/engine}
- {name: USER, value: engine}
- {name: HF_HOME, value: /home/engine/huggingface}
- {name: HF_HUB_OFFLINE, value: "1"}
- {name: TRANSFORMERS_OFFLINE, value: "1"}
- {name: USAGE_STATS, value: "off"}
- {name: TRITON_CACHE_DIR, value: /home/engine/triton}
- {name: GRACEFUL_TERMINATION_TIMEOUT, value: {{ int64 .Values.shutdownTimeoutSeconds | toString | quote }}}
{{- end -}}

{{/* Every flag of the launcher is a variable too. */}}
{{- define "engine.reservedEnv" -}}
MODEL_ID HOSTNAME PORT NUM_SHARD SHARDED QUANTIZE
{{- end -}}

{{- define "engine.readiness" -}}/health{{- end -}}

{{- define "engine.liveness" -}}/health{{- end -}}

{{- define "engine.livenessTimeout" -}}10{{- end -}}

{{/* The launcher's own limit for the end of its router and shards. */}}
{{- define "engine.leastDrain" -}}90{{- end -}}

{{- define "engine.files" -}}{{- end -}}
