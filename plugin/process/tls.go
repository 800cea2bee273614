package process

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// clientCertEnv holds the host's certificate, in PEM: the only one that a plugin lets in.
const clientCertEnv = "PLUGIN_CLIENT_CERT"

// clientTLS makes the host's half of AutoMTLS: a configuration to which go-plugin adds the plugin's certificate, from
// the handshake line, and the host's certificate for the plugin. go-plugin's own would have a key on curve P-521,
// whose signatures BoringSSL does not accept, and with it gRPC in Python, C++ and every other language that wraps
// gRPC's C core, and would be an authority, which rustls does not accept as anybody's own certificate.
func clientTLS() (config *tls.Config, certificate string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", plugin.Errorf(plugin.System, "key for mutual TLS: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, "", plugin.Errorf(plugin.System, "certificate for mutual TLS: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "localhost", Organization: []string{"Shunt"}},
		DNSNames:     []string{"localhost"},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().AddDate(30, 0, 0),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, "", plugin.Errorf(plugin.System, "certificate for mutual TLS: %w", err)
	}
	config = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS12,
		ServerName:   "localhost",
	}
	return config, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}
