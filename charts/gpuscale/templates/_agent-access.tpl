{{/*
How those who scrape the node agents reach them over TLS: arguments, variables, and the volume with the CA and
the password. It is a folder, so that what is renewed arrives without a restart.
*/}}
{{- define "gpuscale.agentTls" -}}
{{- with .Values.spec.agent }}{{ if and .enabled .tls.secret }}true{{ end }}{{ end -}}
{{- end }}

{{- define "gpuscale.agentServerName" -}}
{{- .Values.spec.agent.tls.serverName | default (printf "%s.%s.svc" (include "gpuscale.agentService" .) .Release.Namespace) -}}
{{- end }}

{{- define "gpuscale.agentAccess.args" -}}
{{- if include "gpuscale.agentTls" . }}
- --agent-ca-file=/etc/gpuscale/agents/ca.crt
- --agent-server-name={{ include "gpuscale.agentServerName" . }}
{{- if .Values.spec.agent.basicAuth.clientSecret }}
- --agent-username=$(AGENT_USERNAME)
- --agent-password-file=/etc/gpuscale/agents/password
{{- end }}
{{- end }}
{{- end }}

{{- define "gpuscale.agentAccess.env" -}}
{{- $found := list }}
{{- if and (include "gpuscale.agentTls" .) (include "gpuscale.hasStreams" .) }}
{{- with .Values.spec.agent.basicAuth.clientSecret }}
{{- $found = list (dict "name" "AGENT_USERNAME" "valueFrom" (dict "secretKeyRef" (dict "name" . "key" "username"))) }}
{{- end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{/* The volume: include "gpuscale.agentAccess.volume" (list . "username" "password") */}}
{{- define "gpuscale.agentAccess.volume" -}}
{{- $keys := rest . -}}
{{- with (first .).Values.spec.agent }}
- name: agent-access
  projected:
    defaultMode: 0440
    sources:
    # The CA alone: the agents' Secret has their key too.
    - secret:
        name: {{ .tls.secret }}
        items:
        - {key: ca.crt, path: ca.crt}
    {{- with .basicAuth.clientSecret }}
    - secret:
        name: {{ . }}
        items:
        {{- range $keys }}
        - {key: {{ . }}, path: {{ . }}}
        {{- end }}
    {{- end }}
{{- end }}
{{- end }}

{{/* What a scrape job of the agents says of TLS and of who asks. */}}
{{- define "gpuscale.agentAccess.scrape" -}}
{{- if include "gpuscale.agentTls" . }}
scheme: https
tls_config:
  ca_file: /etc/prometheus/node-agent/ca.crt
  server_name: {{ include "gpuscale.agentServerName" . }}
{{- if .Values.spec.agent.basicAuth.clientSecret }}
basic_auth:
  username_file: /etc/prometheus/node-agent/username
  password_file: /etc/prometheus/node-agent/password
{{- end }}
{{- end }}
{{- end }}

{{/* The same for an endpoint of a ServiceMonitor. */}}
{{- define "gpuscale.agentAccess.endpoint" -}}
{{- if include "gpuscale.agentTls" . }}
scheme: https
tlsConfig:
  ca:
    secret:
      name: {{ .Values.spec.agent.tls.secret }}
      key: ca.crt
  serverName: {{ include "gpuscale.agentServerName" . }}
{{- with .Values.spec.agent.basicAuth.clientSecret }}
basicAuth:
  username: {name: {{ . }}, key: username}
  password: {name: {{ . }}, key: password}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether the agents ask the API server, for pods or for their nodes. */}}
{{- define "gpuscale.agentAsksApi" -}}
{{- with .Values.spec.agent }}{{ if or (eq .attribution "processes") .readyTaint }}true{{ end }}{{ end -}}
{{- end }}
