{{/*
What every runtime chart shares. A chart links to the files of this folder and adds templates/_engine.tpl with

  engine.tag               tag of the image whose flags the chart knows
  engine.command           the container's command, as a YAML list
  engine.args              its arguments, as a YAML list that ends with a whole option
  engine.reserved          options of the engine that extraArgs may not hold, separated by blanks
  engine.env               its environment, as a YAML list
  engine.reservedEnv       further variables that extraEnv may not hold, separated by blanks
  engine.readiness         path that answers 200 once the engine takes requests
  engine.liveness          path that answers 200 as long as the process is worth keeping
  engine.livenessTimeout   longest answer of that path, in seconds
  engine.leastDrain        least time that the engine takes after SIGTERM while requests are in flight, in seconds
  engine.files             files under /etc/engine, as a YAML map of name to text; may be empty

and templates/_metrics.tpl with

  metrics.path             path of the Prometheus metrics on the engine's port
  metrics.window           seconds over which a rate is taken, unless the values say otherwise
  metrics.tokens           PromQL for the generated tokens per second of .pods over .window
  metrics.waiting          PromQL for the requests of .pods that wait
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
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default (include "engine.tag" .)) | quote }}
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
{{- $drain := max (int64 .Values.shutdownTimeoutSeconds) (include "engine.leastDrain" . | int64) -}}
{{ add (int64 .Values.preStopSeconds) $drain 10 }}
{{- end -}}

{{/*
What the chart sets itself is not for extraArgs: the later of two flags wins in every engine. Engines take "_" for
"-", and some take the beginning of a flag for the whole.
*/}}
{{- define "runtime.extraArgs" -}}
{{- $own := splitList " " (include "engine.reserved" . | trim) -}}
{{- range $position, $word := .Values.extraArgs }}
{{- $flag := $word | splitList "=" | first | replace "_" "-" }}
{{- if and (eq $position 0) (not (hasPrefix "-" $word)) }}
{{- fail (printf "extraArgs: %s is no option of the engine: begin with one" $word) }}
{{- end }}
{{- range $own }}
{{- if or (eq $flag .) (and (hasPrefix "--" $flag) (hasPrefix $flag .)) }}
{{- fail (printf "extraArgs: %s is set by the chart: leave it out" $word) }}
{{- end }}
{{- end }}
- {{ toJson $word }}
{{- end }}
{{- end -}}

{{- define "runtime.extraEnv" -}}
{{- $own := splitList " " (include "engine.reservedEnv" . | trim) -}}
{{- range include "engine.env" . | fromYamlArray }}{{ $own = append $own .name }}{{ end -}}
{{- range .Values.extraEnv }}
{{- if has .name $own }}
{{- fail (printf "extraEnv: %s is set by the chart: leave it out" .name) }}
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{- toYaml . }}
{{- end }}
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
