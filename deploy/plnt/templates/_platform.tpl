{{/* Every process: name -> its command, shutdown grace, and whether it talks to the API server. */}}
{{- define "platform.processes" -}}
bridge: {command: [bridge], grace: 20, api: true}
control: {command: [workflows], grace: 20, api: false}
gpu: {command: [activities, gpu], grace: 20, api: true, pool: true}
weights: {command: [activities, weights], grace: 20, api: true, pool: true}
deploy: {command: [activities, deploy], grace: 90, api: true, pool: true}
smoke: {command: [activities, smoke], grace: 20, api: false, pool: true}
promote: {command: [activities, promote], grace: 45, api: true, pool: true}
{{- end }}

{{- define "platform.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "platform.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "platform.selector" -}}
app.kubernetes.io/name: plnt
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "platform.labels" -}}
{{ include "platform.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "platform.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "platform.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "platform.temporalEnv" -}}
- name: TEMPORAL_ADDRESS
  value: {{ .Values.temporal.address | quote }}
- name: TEMPORAL_NAMESPACE
  value: {{ .Values.temporal.namespace | quote }}
- name: PLNT_LOG_LEVEL
  value: {{ .Values.logLevel }}
{{- end }}

{{/* A pod without access to the API server, for the register job and the test. */}}
{{- define "platform.oneShot" -}}
restartPolicy: {{ .restart }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- include "platform.podSecurity" .root | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .command }}
    image: {{ include "platform.image" .root }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    command: [python, -m, workflows, {{ .command }}]
    env:
      {{- include "platform.temporalEnv" .root | nindent 6 }}
    {{- with .root.Values.temporal.envFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    resources:
      requests: {cpu: 50m, memory: 128Mi}
      limits: {memory: 512Mi}
    securityContext:
      {{- include "platform.security" .root | nindent 6 }}
{{- end }}

