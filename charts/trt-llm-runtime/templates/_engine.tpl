{{/* What trtllm-serve wants; options of TensorRT-LLM 1.3. */}}

{{- define "engine.tag" -}}{{ .Chart.AppVersion }}{{- end -}}

{{- define "engine.command" -}}
- trtllm-serve
- serve
{{- end -}}

{{/*
The default host is the loopback address. Before 1.3 there is no option for the served name; those versions serve
the model under the name of its folder.
*/}}
{{- define "engine.args" -}}
{{- if eq .Values.quantization "fp8" }}
{{- fail "quantization: TensorRT-LLM cannot quantize weights while it loads them: use a checkpoint in fp8" }}
{{- end }}
{{- $name := required "model.name: the name that clients ask for" .Values.model.name -}}
- {{ include "runtime.literal" .Values.weights.mountPath }}
- --host
- 0.0.0.0
- --port
- "8000"
- --tp_size
- {{ int64 .Values.resources.gpu | toString | quote }}
{{- if semverCompare ">=1.3.0-0" (include "engine.version" .) }}
- --served_model_name
- {{ include "runtime.literal" $name }}
{{- end }}
- --config
- /etc/engine/engine.yaml
{{- end -}}

{{/* The image's version; a tag that is no version counts as the chart's own. */}}
{{- define "engine.version" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{ regexMatch "^v?[0-9]+\\.[0-9]+\\.[0-9]+" $tag | ternary (regexFind "^v?[0-9]+\\.[0-9]+\\.[0-9]+(-?rc[0-9.]+)?" $tag | replace "rc" "-rc" | replace "--rc" "-rc") "1.3.0" }}
{{- end -}}

{{- define "engine.reserved" -}}
--host --port --tp-size --tensor-parallel-size --served-model-name --config --extra-llm-api-options
{{- end -}}

{{- define "engine.env" -}}
- {name: HOME, value: /home/engine}
- {name: USER, value: engine}
- {name: HF_HOME, value: /home/engine/huggingface}
- {name: HF_HUB_OFFLINE, value: "1"}
- {name: TRANSFORMERS_OFFLINE, value: "1"}
- {name: TORCHINDUCTOR_CACHE_DIR, value: /home/engine/inductor}
- {name: TRITON_CACHE_DIR, value: /home/engine/triton}
{{- end -}}

{{- define "engine.reservedEnv" -}}{{- end -}}

{{- define "engine.readiness" -}}/health{{- end -}}

{{- define "engine.liveness" -}}/health{{- end -}}

{{- define "engine.livenessTimeout" -}}10{{- end -}}

{{- define "engine.leastDrain" -}}0{{- end -}}

{{/* Without the first key there are no Prometheus metrics, without the second no gauges among them. */}}
{{- define "engine.files" -}}
engine.yaml: |
  return_perf_metrics: true
  enable_iter_perf_stats: true
{{- end -}}
