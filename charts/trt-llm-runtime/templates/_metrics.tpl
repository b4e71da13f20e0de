{{/*
Metrics of TensorRT-LLM 1.3, which are not at /metrics: that is a list emptied by reading. The counter grows when a
request ends, so that the window has to be longer than most requests.
*/}}

{{- define "metrics.path" -}}/prometheus/metrics{{- end -}}

{{/* Seconds over which a rate is taken unless the values say otherwise. */}}
{{- define "metrics.window" -}}300{{- end -}}

{{- define "metrics.tokens" -}}
rate(trtllm_generation_tokens_total{ {{- .pods -}} }[{{ .window }}])
{{- end -}}

{{- define "metrics.waiting" -}}
trtllm_num_requests_waiting{ {{- .pods -}} }
{{- end -}}
