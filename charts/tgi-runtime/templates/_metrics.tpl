{{/*
Metrics of TGI 3.3: the histogram grows when a request ends, so that the window has to be longer than most requests.
*/}}

{{- define "metrics.path" -}}/metrics{{- end -}}

{{/* Seconds over which a rate is taken unless the values say otherwise. */}}
{{- define "metrics.window" -}}300{{- end -}}

{{- define "metrics.tokens" -}}
rate(tgi_request_generated_tokens_sum{ {{- .pods -}} }[{{ .window }}])
{{- end -}}

{{- define "metrics.waiting" -}}
tgi_queue_size{ {{- .pods -}} }
{{- end -}}
