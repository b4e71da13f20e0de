{{/*
Metrics of SGLang 0.5.23: this counter grows with every step of decoding, generation_tokens_total only when a request
ends. One rank records unless --enable-metrics-for-all-schedulers is passed, which would count twice.
*/}}

{{- define "metrics.path" -}}/metrics{{- end -}}

{{/* Seconds over which a rate is taken unless the values say otherwise. */}}
{{- define "metrics.window" -}}60{{- end -}}

{{- define "metrics.tokens" -}}
rate(sglang:realtime_tokens_total{mode="decode",{{ .pods }}}[{{ .window }}])
{{- end -}}

{{- define "metrics.waiting" -}}
sglang:num_queue_reqs{ {{- .pods -}} }
{{- end -}}
