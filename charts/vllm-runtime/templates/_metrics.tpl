{{/*
Metrics of vLLM 0.33: the counter grows with every step of decoding.
*/}}

{{- define "metrics.path" -}}/metrics{{- end -}}

{{/* Seconds over which a rate is taken unless the values say otherwise. */}}
{{- define "metrics.window" -}}60{{- end -}}

{{- define "metrics.tokens" -}}
rate(vllm:generation_tokens_total{ {{- .pods -}} }[{{ .window }}])
{{- end -}}

{{- define "metrics.waiting" -}}
vllm:num_requests_waiting{ {{- .pods -}} }
{{- end -}}
