package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
)

const (
	address      = "127.0.0.1:6443"
	usageAddress = "127.0.0.1:6444"
)

var scheme = runtime.NewScheme()

// A type that is served.
type resource struct {
	group              schema.GroupVersion
	plural, singular   string
	isNamespaced       bool
	newObject, newList func() runtime.Object
}

var resources = []resource{
	{corev1.SchemeGroupVersion, "nodes", "node", false, as[corev1.Node], as[corev1.NodeList]},
	{corev1.SchemeGroupVersion, "services", "service", true, as[corev1.Service], as[corev1.ServiceList]},
	{discoveryv1.SchemeGroupVersion, "endpointslices", "endpointslice", true,
		as[discoveryv1.EndpointSlice], as[discoveryv1.EndpointSliceList]},
	{networkingv1.SchemeGroupVersion, "servicecidrs", "servicecidr", false,
		as[networkingv1.ServiceCIDR], as[networkingv1.ServiceCIDRList]},
}

func as[T any, P interface {
	*T
	runtime.Object
}]() runtime.Object {
	return P(new(T))
}

// Registers the types. kube-apiserver converts between the types that it has in memory and those that it sends; here they are the
// same, which costs a little less for each object.
func init() {
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	for _, resource := range resources {
		utilruntime.Must(scheme.SetVersionPriority(resource.group))
		inMemory := schema.GroupVersion{Group: resource.group.Group, Version: runtime.APIVersionInternal}
		scheme.AddKnownTypes(inMemory, resource.newObject(), resource.newList())
	}
	utilruntime.Must(scheme.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind("Service"),
		func(label, value string) (string, string, error) { return label, value, nil }))
}

// The strategy of all types: any object is stored as it comes.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	isNamespaced bool
}

func (s strategy) NamespaceScoped() bool                                          { return s.isNamespaced }
func (strategy) AllowCreateOnUpdate() bool                                        { return false }
func (strategy) AllowUnconditionalUpdate() bool                                   { return true }
func (strategy) Canonicalize(runtime.Object)                                      {}
func (strategy) PrepareForCreate(context.Context, runtime.Object)                 {}
func (strategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}
func (strategy) Validate(context.Context, runtime.Object) field.ErrorList         { return nil }
func (strategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// The fields that selectors can name.
func attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, nil, err
	}
	set := fields.Set{"metadata.name": accessor.GetName(), "metadata.namespace": accessor.GetNamespace()}
	if service, ok := object.(*corev1.Service); ok {
		set["spec.clusterIP"] = service.Spec.ClusterIP
		set["spec.type"] = string(service.Spec.Type)
	}
	return accessor.GetLabels(), set, nil
}

func newStore(resource resource, getter generic.RESTOptionsGetter) (rest.Storage, error) {
	strategy := strategy{scheme, names.SimpleNameGenerator, resource.isNamespaced}
	name := schema.GroupResource{Group: resource.group.Group, Resource: resource.plural}
	store := &genericregistry.Store{
		NewFunc: resource.newObject, NewListFunc: resource.newList,
		DefaultQualifiedResource:  name,
		SingularQualifiedResource: schema.GroupResource{Group: resource.group.Group, Resource: resource.singular},
		CreateStrategy:            strategy, UpdateStrategy: strategy, DeleteStrategy: strategy,
		TableConvertor: rest.NewDefaultTableConvertor(name),
		PredicateFunc: func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
			return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes}
		},
	}
	return store, store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter, AttrFunc: attributes})
}

// Serves until it is stopped. Objects are in etcd in protobuf, and in the watch cache, as those of kube-apiserver.
func serve(ctx context.Context, etcd, folder string) error {
	codecs := serializer.NewCodecFactory(scheme)
	config := genericapiserver.NewConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.ExternalAddress = address
	config.EnableIndex = false // An unknown type gets the answer of kube-apiserver, and not a list of paths.
	config.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	traffic := &countingListener{Listener: listener}
	serving := options.NewSecureServingOptions()
	serving.Listener = traffic
	serving.ServerCert.CertDirectory = folder
	serving.ServerCert.PairName = "apiserver"
	if err := serving.MaybeDefaultWithSelfSignedCerts("127.0.0.1", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return err
	}
	if err := serving.WithLoopback().ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return err
	}

	backend := storagebackend.NewDefaultConfig("/registry", nil)
	backend.Transport.ServerList = []string{etcd}
	factory := serverstorage.NewDefaultStorageFactory(*backend, runtime.ContentTypeProtobuf, codecs,
		serverstorage.NewDefaultResourceEncodingConfigForEffectiveVersion(scheme, config.EffectiveVersion),
		serverstorage.NewResourceConfig(), nil)
	if err := options.NewEtcdOptions(backend).ApplyWithStorageFactoryTo(factory, config); err != nil {
		return err
	}

	completed := config.Complete(nil)
	server, err := completed.New("kube-server", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return err
	}
	stored := map[schema.GroupVersion]map[string]rest.Storage{}
	for _, resource := range resources {
		store, err := newStore(resource, config.RESTOptionsGetter)
		if err != nil {
			return err
		}
		if stored[resource.group] == nil {
			stored[resource.group] = map[string]rest.Storage{}
		}
		stored[resource.group][resource.plural] = store
	}
	for group, stores := range stored {
		if err := install(server, group, stores); err != nil {
			return err
		}
	}
	if err := writeKubeconfig(folder); err != nil {
		return err
	}
	go serveUsage(traffic)
	return server.PrepareRun().RunWithContext(ctx)
}

// What GenericAPIServer.InstallAPIGroup does, without OpenAPI: its documents of these types are not in Kubernetes' libraries.
func install(server *genericapiserver.GenericAPIServer, group schema.GroupVersion, stores map[string]rest.Storage) error {
	codecs := serializer.NewCodecFactory(scheme)
	info := genericapiserver.NewDefaultAPIGroupInfo(group.Group, scheme, runtime.NewParameterCodec(scheme), codecs)
	root := genericapiserver.APIGroupPrefix
	if group.Group == "" {
		root = genericapiserver.DefaultLegacyAPIPrefix
	}
	version := &endpoints.APIGroupVersion{
		Storage: stores, Root: root, GroupVersion: group, OptionsExternalVersion: info.OptionsExternalVersion,
		Serializer: info.NegotiatedSerializer, ParameterCodec: info.ParameterCodec,
		Typer: scheme, Creater: scheme, Convertor: scheme, ConvertabilityChecker: scheme, Defaulter: scheme,
		Namer: runtime.Namer(meta.NewAccessor()), UnsafeConvertor: runtime.UnsafeObjectConvertor(scheme),
		TypeConverter:              managedfields.NewDeducedTypeConverter(),
		EquivalentResourceRegistry: server.EquivalentResourceRegistry, Authorizer: server.Authorizer,
		MinRequestTimeout: 1800e9,
	}
	_, _, err := version.InstallREST(server.Handler.GoRestfulContainer)
	return err
}

func writeKubeconfig(folder string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: bench
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
clusters: [{name: bench, cluster: {server: "https://%s", certificate-authority: %s}}]
users: [{name: bench, user: {}}]
`, address, filepath.Join(folder, "apiserver.crt"))
	return os.WriteFile(filepath.Join(folder, "kubeconfig"), []byte(text), 0o600)
}

// Counts the bytes of all connections, as they are on the wire.
type countingListener struct {
	net.Listener
	sent, received atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	return &countingConnection{connection, l}, err
}

type countingConnection struct {
	net.Conn
	counts *countingListener
}

func (c *countingConnection) Read(buffer []byte) (int, error) {
	n, err := c.Conn.Read(buffer)
	c.counts.received.Add(int64(n))
	return n, err
}

func (c *countingConnection) Write(buffer []byte) (int, error) {
	n, err := c.Conn.Write(buffer)
	c.counts.sent.Add(int64(n))
	return n, err
}

// Answers each request by what this process has used so far: CPU time in microseconds, bytes sent, received and allocated. With
// the path /collect it first collects garbage, so that no collection, which costs half as much as a start, is in a measurement.
func serveUsage(traffic *countingListener) {
	utilruntime.Must(http.ListenAndServe(usageAddress, http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/collect" {
			goruntime.GC()
		}
		var usage syscall.Rusage
		utilruntime.Must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
		allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(allocated)
		cpu := (usage.Utime.Sec+usage.Stime.Sec)*1e6 + usage.Utime.Usec + usage.Stime.Usec
		fmt.Fprintln(answer, cpu, traffic.sent.Load(), traffic.received.Load(), allocated[0].Value.Uint64())
	})))
}
