{{/* What SGLang's launch_server wants; flags of SGLang 0.5.23. */}}

{{- define "engine.tag" -}}v{{ .Chart.AppVersion }}{{- end -}}

{{- define "engine.command" -}}
- python3
- -m
- sglang.launch_server
{{- end -}}

{{/*
The default host is the loopback address, and metrics are off by default. A quantization flag only for weights that
are quantized while they load: for others SGLang finds the fastest kernel by itself, and a flag forces a slower one.
*/}}
{{- define "engine.args" -}}
- --model-path
- {{ include "runtime.literal" .Values.weights.mountPath }}
- --served-model-name
- {{ include "runtime.literal" (required "model.name: the name that clients ask for" .Values.model.name) }}
- --host
- 0.0.0.0
- --port
- "8000"
- --tp-size
- {{ int64 .Values.resources.gpu | toString | quote }}
- --enable-metrics
{{- if eq .Values.quantization "fp8" }}
- --quantization
- fp8
{{- end }}
{{- end -}}

{{- define "engine.reserved" -}}
--model-path --model --served-model-name --host --port --tp-size --tensor-parallel-size --enable-metrics --quantization
{{- end -}}

{{/*
Without generation the health endpoint is cheap and does not fail a server that is busy with long prompts; a
scheduler that dies takes the process with it.
*/}}
{{- define "engine.env" -}}
- {name: HOME, value: /home/engine}
- {name: USER, value: engine}
- {name: HF_HOME, value: /home/engine/huggingface}
- {name: HF_HUB_OFFLINE, value: "1"}
- {name: TRANSFORMERS_OFFLINE, value: "1"}
- {name: TORCHINDUCTOR_CACHE_DIR, value: /home/engine/inductor}
- {name: TRITON_CACHE_DIR, value: /home/engine/triton}
- {name: SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION, value: "false"}
- {name: SGLANG_WARMUP_TIMEOUT, value: {{ int64 .Values.startupBudgetSeconds | toString | quote }}}
{{- end -}}

{{- define "engine.reservedEnv" -}}{{- end -}}

{{/* Fails while the server starts and while it drains, and generates nothing. */}}
{{- define "engine.readiness" -}}/ready{{- end -}}

{{- define "engine.liveness" -}}/health{{- end -}}

{{/* Longer than the server's own limit of 20 s for a health check that generates. */}}
{{- define "engine.livenessTimeout" -}}25{{- end -}}

{{- define "engine.leastDrain" -}}0{{- end -}}

{{- define "engine.files" -}}{{- end -}}
