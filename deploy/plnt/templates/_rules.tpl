{{/*
What each account may do where WorkflowRuns live. Each grant is used by an end-to-end scenario: tests/e2e/test_99_audit.py
compares the API server's audit log with this table. control and smoke have no right at all; weights gets `get` on
single Secrets by Roles that tenants make.
*/}}
{{- define "platform.tenantRules" -}}
bridge:
  - apiGroups: [plnt.work]
    resources: [workflowruns]
    verbs: [get, list, watch, patch]
  - apiGroups: [plnt.work]
    resources: [workflowruns/status]
    verbs: [patch]
  - apiGroups: [events.k8s.io]
    resources: [events]
    verbs: [create]
deploy:
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [get, list, create, update, patch, delete]
  - apiGroups: [""]
    resources: [services]
    verbs: [get, list, create, patch, delete]
  - apiGroups: [""]
    resources: [pods]
    verbs: [list]
  - apiGroups: [""]
    resources: [pods/log]
    verbs: [get]
  - apiGroups: [""]
    resources: [persistentvolumeclaims]
    verbs: [get]
  - apiGroups: [apps]
    resources: [deployments]
    verbs: [get, list, create, patch, delete]
  - apiGroups: [apps]
    resources: [deployments/scale]
    verbs: [get, patch]
  - apiGroups: [apps]
    resources: [replicasets]
    verbs: [list]
  - apiGroups: [policy]
    resources: [poddisruptionbudgets]
    verbs: [get, list, create, patch, delete]
  - apiGroups: [monitoring.coreos.com]
    resources: [podmonitors, prometheusrules]
    verbs: [get, create, patch, delete]
  - apiGroups: [networking.istio.io]
    resources: [virtualservices]
    verbs: [get]
promote:
  - apiGroups: [""]
    resources: [services]
    verbs: [get, create, patch]
  - apiGroups: [discovery.k8s.io]
    resources: [endpointslices]
    verbs: [list]
  - apiGroups: [networking.istio.io]
    resources: [virtualservices]
    verbs: [get, list, create, patch, delete]
  - apiGroups: [autoscaling]
    resources: [horizontalpodautoscalers]
    verbs: [get, create, patch, delete]
  - apiGroups: [keda.sh]
    resources: [scaledobjects]
    verbs: [get, create, patch, delete]
{{- end }}

{{/* What is of the whole cluster in both modes: nodes, and the pods on them, are read to count free GPUs. */}}
{{- define "platform.clusterRules" -}}
gpu:
  - apiGroups: [""]
    resources: [nodes, pods]
    verbs: [list]
  - apiGroups: [resource.k8s.io]
    resources: [deviceclasses]
    verbs: [list]
{{- end }}
