{{/* The name of the chart, as it is in names and labels. */}}
{{- define "contiv.chartName" -}}
{{ .root.Values.nameOverride | default .root.Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* The name of a component: contiv-agent in a release named contiv, a-contiv-agent in one named a. */}}
{{- define "contiv.name" -}}
{{- $chart := include "contiv.chartName" . }}
{{- $release := .root.Release.Name }}
{{- $full := .root.Values.fullnameOverride | default (ternary $release (printf "%s-%s" $release $chart) (contains $chart $release)) -}}
{{ printf "%s-%s" ($full | trunc 50 | trimSuffix "-") .component }}
{{- end }}

{{/* The service account of a component's pods. */}}
{{- define "contiv.serviceAccountName" -}}
{{- $account := .part.serviceAccount -}}
{{ $account.name | default (ternary (include "contiv.name" .) "default" $account.create) }}
{{- end }}

{{- define "contiv.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "contiv.serviceAccountName" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "contiv.labels" . | nindent 4 }}
  {{- with .part.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "contiv.selector" -}}
app.kubernetes.io/name: {{ include "contiv.chartName" . }}-{{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "contiv.labels" -}}
{{ include "contiv.selector" . }}
app.kubernetes.io/part-of: contiv
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "contiv.metadata" -}}
name: {{ include "contiv.name" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "contiv.labels" . | nindent 2 }}
{{- end }}

{{- define "contiv.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* A configuration file (TOML): JSON's strings, numbers, booleans and lists are TOML's too. */}}
{{- define "contiv.toml" -}}
{{- range $key, $value := . }}
{{- $key }} = {{ toJson $value }}
{{ end }}
{{- end }}

{{/* The three probes of a container; one that is null is left out. */}}
{{- define "contiv.probes" -}}
{{- $paths := dict "startupProbe" "/liveness" "readinessProbe" "/readiness" "livenessProbe" "/liveness" }}
{{- $this := . }}
{{- range $probe := list "startupProbe" "readinessProbe" "livenessProbe" }}
{{- $times := get $this.part $probe }}
{{- if kindIs "map" $times }}
{{ $probe }}:
  httpGet:
    path: {{ get $paths $probe }}
    {{- include "contiv.probe" $this.config | nindent 4 }}
  {{- with $times }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where probes ask: the host and the port of the debug HTTP. */}}
{{- define "contiv.probe" -}}
{{- $port := mustRegexFind "[0-9]+$" .listen | int -}}
{{- $host := trimSuffix (printf ":%d" $port) .listen | trimPrefix "[" | trimSuffix "]" -}}
host: {{ get (dict "0.0.0.0" "127.0.0.1" "::" "::1") $host | default $host | quote }}
port: {{ $port }}
{{- end }}

{{/* Where the API server is, in the place of the variables that name its service. */}}
{{- define "contiv.apiServer" -}}
- name: KUBERNETES_SERVICE_HOST
  valueFrom: {configMapKeyRef: {name: {{ . }}, key: api-server-host}}
- name: KUBERNETES_SERVICE_PORT
  valueFrom: {configMapKeyRef: {name: {{ . }}, key: api-server-port}}
{{- end }}

{{- define "contiv.apiServerData" -}}
api-server-host: {{ required "apiServer.host: the address of the API server itself, as in api.example.com, is required" .host | quote }}
api-server-port: {{ .port | quote }}
{{- end }}

{{- define "contiv.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The security context of a pod. Kubernetes would only refuse to start a root user who may not be root. */}}
{{- define "contiv.podSecurity" -}}
{{- with .values.podSecurityContext -}}
{{- if and .runAsNonRoot (hasKey . "runAsUser") (eq (int .runAsUser) 0) }}
{{- fail (printf "%s.podSecurityContext: runAsUser is 0, so runAsNonRoot must be false" $.part) }}
{{- end -}}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
