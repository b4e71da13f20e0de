{{/*
What every runtime chart shares. A chart adds templates/_engine.tpl with "engine.command", "engine.args",
"engine.env", "engine.readiness" and "engine.liveness", and links to the files of this folder.
*/}}

{{- define "runtime.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The whole selector: a release is one revision, so no other pod may carry its instance label. */}}
{{- define "runtime.selector" -}}
app.kubernetes.io/instance: {{ include "runtime.fullname" . | quote }}
{{- end -}}

{{- define "runtime.labels" -}}
{{ include "runtime.selector" . }}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/component: inference-server
{{- with .Values.owner }}
plnt.work/owner: {{ . | quote }}
{{- end }}
{{- with .Values.revision }}
plnt.work/revision: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Labels of objects that are not pods; a Helm version in the pod template would restart pods for nothing. */}}
{{- define "runtime.objectLabels" -}}
{{ include "runtime.labels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- define "runtime.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default (printf "v%s" .Chart.AppVersion)) | quote }}
{{- end -}}

{{/* Kubernetes expands $(NAME) in command, args and env; what a user wrote is meant as it stands. */}}
{{- define "runtime.literal" -}}
{{ . | toString | replace "$(" "$$(" | toJson }}
{{- end -}}

{{/*
A start is noticed within a tenth of a percent of its budget: a probe of a port that does not listen yet costs
nothing, a coarse one holds back a small model for seconds.
*/}}
{{- define "runtime.startupPeriod" -}}
{{ min 10 (max 1 (div (int64 .Values.startupBudgetSeconds) 900)) }}
{{- end -}}

{{- define "runtime.startupProbe" -}}
{{- $period := include "runtime.startupPeriod" . | int64 -}}
{{- $budget := int64 .Values.startupBudgetSeconds -}}
httpGet: {path: {{ include "engine.readiness" . }}, port: http}
periodSeconds: {{ $period }}
timeoutSeconds: 5
failureThreshold: {{ div (add $budget (sub $period 1)) $period }}
{{- end -}}

{{/* Longer than the pre-stop sleep and the drain together, with ten seconds for the engine's own end. */}}
{{- define "runtime.gracePeriod" -}}
{{ add (int64 .Values.preStopSeconds) (int64 .Values.shutdownTimeoutSeconds) 10 }}
{{- end -}}

{{- define "runtime.tolerations" -}}
{{- range . }}
- key: {{ .key | quote }}
  operator: {{ .operator | default "Exists" }}
  {{- if eq (.operator | default "Exists") "Equal" }}
  value: {{ .value | default "" | quote }}
  {{- end }}
  {{- with .effect }}
  effect: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}
