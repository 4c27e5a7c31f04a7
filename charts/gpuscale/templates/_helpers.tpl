{{/* Labels that select the pods of a part: include "gpuscale.selectorLabels" (list . "node-agent") */}}
{{- define "gpuscale.selectorLabels" -}}
{{- $root := first . -}}
app.kubernetes.io/name: gpuscale
app.kubernetes.io/instance: {{ $root.Values.metadata.name | quote }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* Labels of every object of a part. */}}
{{- define "gpuscale.labels" -}}
{{- $root := first . -}}
{{ include "gpuscale.selectorLabels" . }}
app.kubernetes.io/part-of: gpuscale
gpuscale.dev/install: {{ $root.Values.metadata.name | quote }}
{{- end }}

{{/* Metadata of a namespaced object: include "gpuscale.metadata" (list . "node-agent"), or with a name at the end. */}}
{{- define "gpuscale.metadata" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $own := printf "%s-%s" $root.Values.metadata.name $part -}}
name: {{ len . | eq 3 | ternary (last .) $own }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "gpuscale.labels" (list $root $part) | nindent 2 }}
{{- end }}

{{/* Metadata of an object without a namespace: include "gpuscale.clusterMetadata" (list . "metrics-api" $name) */}}
{{- define "gpuscale.clusterMetadata" -}}
name: {{ last . }}
labels:
  {{- include "gpuscale.labels" (list (index . 0) (index . 1)) | nindent 2 }}
{{- end }}

{{/* The image of the node agent and of the metrics API. */}}
{{- define "gpuscale.image" -}}
{{- with .Values.spec.image -}}
{{ .repository }}:{{ .tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* The service account of a part: include "gpuscale.serviceAccountName" (list . "node-agent" .Values.spec.agent) */}}
{{- define "gpuscale.serviceAccountName" -}}
{{- $root := first . -}}
{{- (last .).serviceAccount.name | default (printf "%s-%s" $root.Values.metadata.name (index . 1)) -}}
{{- end }}

{{/* The object of that account, whose token no pod gets unasked. */}}
{{- define "gpuscale.serviceAccount" -}}
{{- $root := first . -}}
{{- $identity := dict -}}
{{- with include "gpuscale.identity" . -}}
{{- $identity = dict "azure.workload.identity/client-id" . -}}
{{- end -}}
{{- with (last .).serviceAccount }}
{{- if .create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "gpuscale.metadata" (list $root (index $ 1) (include "gpuscale.serviceAccountName" $)) | nindent 2 }}
  {{- with merge dict .annotations $identity }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}
{{- end }}
{{- end }}

{{/* Metadata of a part's Service; a dict at the end has annotations of ours. */}}
{{- define "gpuscale.serviceMetadata" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $settings := index . 2 -}}
name: {{ eq $part "node-agent" | ternary (include "gpuscale.agentService" $root) (printf "%s-%s" $root.Values.metadata.name $part) }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- $own := include "gpuscale.labels" (list $root $part) | fromYaml }}
  {{- merge $own $settings.service.labels | toYaml | nindent 2 }}
{{- with mergeOverwrite (len . | eq 4 | ternary (last .) dict) $settings.service.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Client id with which a part asks an Azure Monitor workspace: include "gpuscale.identity" (list . "scaler") */}}
{{- define "gpuscale.identity" -}}
{{- if and (has (index . 1) (list "metrics-api" "scaler")) (not (include "gpuscale.hasStreams" (first .))) -}}
{{- (first .).Values.spec.prometheus.identity | default "" -}}
{{- end -}}
{{- end }}

{{/* Metadata of a part's pods: include "gpuscale.podMetadata" (list . "node-agent" .Values.spec.agent) */}}
{{- define "gpuscale.podMetadata" -}}
{{- $settings := last . -}}
{{- $own := include "gpuscale.labels" (list (index . 0) (index . 1)) | fromYaml -}}
{{- $identity := dict -}}
{{- if include "gpuscale.identity" . -}}
{{- $identity = dict "azure.workload.identity/use" "true" -}}
{{- end -}}
labels:
  {{- merge $own $settings.podLabels $identity | toYaml | nindent 2 }}
{{- $annotations := $settings.podAnnotations }}
{{- with $settings.settings }}
{{- /* They are read at the start: other settings are other pods. */}}
{{- $annotations = merge (dict "gpuscale.dev/settings" (toJson .)) $annotations }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
What settings say of a part's pods. Mappings are merged into what the part needs, lists replace it.
Takes a dict: root, part, settings; affinity, spread (a list) and security, as the part has them.
*/}}
{{- define "gpuscale.podSettings" -}}
{{- $root := .root }}
{{- with .settings -}}
serviceAccountName: {{ include "gpuscale.serviceAccountName" (list $root $.part .) }}
{{- $pull := list }}
{{- with $root.Values.spec.image.pullSecret }}
{{- $pull = list (dict "name" .) }}
{{- end }}
{{- with concat $pull $root.Values.spec.imagePullSecrets .imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with kindIs "map" .affinity | ternary .affinity $.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with kindIs "slice" .topologySpreadConstraints | ternary .topologySpreadConstraints $.spread }}
topologySpreadConstraints:
{{- range . }}
{{- $own := dict "labelSelector" (dict "matchLabels" (include "gpuscale.selectorLabels" (list $root $.part) | fromYaml)) }}
- {{ hasKey . "labelSelector" | ternary . (merge . $own) | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with mergeOverwrite ($.security | default dict) .podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .hostNetwork }}
hostNetwork: true
{{- end }}
{{- with .dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" .hostNetwork) }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* A container's resources and its securityContext, merged into ours: (list .Values.spec.agent $ours) */}}
{{- define "gpuscale.containerSettings" -}}
{{- with (first .).resources -}}
resources:
  {{- include "gpuscale.withoutNulls" . | nindent 2 }}
{{- end }}
securityContext:
  {{- mergeOverwrite (last .) (first .).securityContext | include "gpuscale.withoutNulls" | nindent 2 }}
{{- end }}

{{/* A mapping as YAML, less what is null: Helm takes away only what the chart's own values have. */}}
{{- define "gpuscale.withoutNulls" -}}
{{- $kept := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $_ := include "gpuscale.withoutNulls" $value | fromYaml | set $kept $key -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $kept $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end }}

{{/* Who may reach a part's port beside the installation's own pods; everyone, unless somebody is named. */}}
{{- define "gpuscale.peers" -}}
{{- $root := first . -}}
{{- with (last .).networkPolicy.from -}}
from:
{{ toYaml . }}
- podSelector:
    matchLabels:
      app.kubernetes.io/name: gpuscale
      app.kubernetes.io/instance: {{ $root.Values.metadata.name | quote }}
{{- end }}
{{- end }}

{{/* The whole mebibytes of a quantity. */}}
{{- define "gpuscale.mebibytes" -}}
{{- $factors := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- if kindIs "string" . -}}
{{- $factor := get $factors (regexFind "[A-Za-z]*$" .) -}}
{{- div (mulf (float64 (regexFind "^[0-9.]+" .)) $factor | int64) 1048576 -}}
{{- else -}}
{{- div (int64 .) 1048576 -}}
{{- end -}}
{{- end }}

{{/* A container's security context without any right that a process can do without; takes the user's id. */}}
{{- define "gpuscale.restrained" -}}
runAsUser: {{ . }}
runAsGroup: {{ . }}
runAsNonRoot: {{ ne . 0 }}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What is known about the values' provider, as YAML. */}}
{{- define "gpuscale.provider" -}}
{{- $all := .Files.Get "files/providers.yaml" | fromYaml -}}
{{ index $all .Values.spec.provider | toYaml }}
{{- end }}

{{/* An affinity for nodes with GPUs: one term for each label that says so. */}}
{{- define "gpuscale.gpuNodeAffinity" -}}
{{- $provider := include "gpuscale.provider" . | fromYaml -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    {{- range $provider.nodeLabels }}
    - matchExpressions:
      - key: {{ .key }}
        {{- if .values }}
        operator: In
        values: {{ toJson .values }}
        {{- else }}
        operator: Exists
        {{- end }}
    {{- end }}
{{- end }}

{{/* Conditions: "true", or nothing. */}}
{{- define "gpuscale.hasApiPods" -}}
{{- with .Values.spec.metricsApi }}{{ if and .enabled (not .externalName) }}true{{ end }}{{ end }}
{{- end }}

{{/* Whether the metrics API's pods make and renew their certificate themselves. */}}
{{- define "gpuscale.renewsCertificate" -}}
{{- if and (include "gpuscale.hasApiPods" .) (eq .Values.spec.metricsApi.certificates "generated") }}true{{ end }}
{{- end }}

{{- define "gpuscale.metricsApiSecret" -}}
{{ .Values.metadata.name }}-metrics-api-{{ include "gpuscale.renewsCertificate" . | empty | ternary "tls" "serving" }}
{{- end }}

{{- define "gpuscale.apiServices" -}}
v1beta1.custom.metrics.k8s.io,v1beta2.custom.metrics.k8s.io
{{- with .Values.spec.metricsApi }}
{{- if .external }},v1beta1.external.metrics.k8s.io{{ end }}
{{- if .resource }},v1beta1.metrics.k8s.io{{ end }}
{{- end }}
{{- end }}

{{/* Whether a CA of another metrics API is given. */}}
{{- define "gpuscale.federatedCas" -}}
{{- if include "gpuscale.hasApiPods" . }}{{ range .Values.spec.metricsApi.federate }}{{ if .caBundle }}true{{ end }}{{ end }}{{ end }}
{{- end }}

{{/* The Services of other metrics APIs, NAMESPACE/NAME; those without a target are known by name. */}}
{{- define "gpuscale.federated" -}}
{{- $usual := .Files.Get "files/federation.yaml" | fromYaml }}
{{- $services := list }}
{{- range .Values.spec.metricsApi.federate }}
{{- $target := .target | default (get $usual .name) }}
{{- if not (hasPrefix "https:" $target) }}{{ $services = append $services (regexReplaceAll ":[0-9]+$" $target "") }}{{ end }}
{{- end }}
{{- join "," $services }}
{{- end }}

{{- define "gpuscale.hasStreams" -}}
{{- with .Values.spec.metricsApi }}{{ if and .enabled (eq .source "streams") }}true{{ end }}{{ end }}
{{- end }}

{{- define "gpuscale.sharesAgents" -}}
{{- if and (include "gpuscale.hasStreams" .) .Values.spec.metricsApi.shareAgents }}true{{ end }}
{{- end }}

{{/* With streams, only alerts and dashboards want a Prometheus. */}}
{{- define "gpuscale.hasOwnPrometheus" -}}
{{- $wanted := or (not (include "gpuscale.hasStreams" .)) .Values.spec.alerts.enabled .Values.spec.dashboards.enabled -}}
{{- if and (eq .Values.spec.prometheus.kind "own") $wanted }}true{{ end }}
{{- end }}

{{/* The address of Prometheus as pods see it. */}}
{{- define "gpuscale.prometheusUrl" -}}
{{- if eq .Values.spec.prometheus.kind "own" -}}
http://{{ .Values.metadata.name }}-prometheus.{{ .Release.Namespace }}.svc:9090
{{- else -}}
{{ .Values.spec.prometheus.url }}
{{- end }}
{{- end }}

{{/* The port that an address leads to. */}}
{{- define "gpuscale.urlPort" -}}
{{- $default := ternary 443 80 (hasPrefix "https:" .) -}}
{{ regexFind "[0-9]+$" (urlParse .).host | default $default }}
{{- end }}

{{/* What Prometheus calls the labels of an agent's series that say whose a GPU is: namespace or exported_namespace. */}}
{{- define "gpuscale.labelPrefix" -}}
{{- if not .Values.spec.prometheus.honorLabels }}exported_{{ end }}
{{- end }}
