//! TLS, with rustls and ring.

use std::sync::Arc;

use leasehold_store::Address;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// The TLS configuration.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) connector: TlsConnector,
    /// The name that the certificate must have, if it is not the host's.
    pub(crate) name: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({:?})", self.name)
    }
}

impl Tls {
    /// Takes `ca`, `cert`, `key` and `server_name` from the address; mistakes are noted there.
    pub(crate) fn from(address: &mut Address) -> Option<Self> {
        let ca = address.param("ca");
        let pair = (address.param("cert"), address.param("key"));
        let name = address.param("server_name");
        match config(ca, pair) {
            Ok(config) => Some(Tls { connector: TlsConnector::from(Arc::new(config)), name }),
            Err(problem) => {
                address.wrong(problem);
                None
            }
        }
    }
}

fn config(ca: Option<String>, pair: (Option<String>, Option<String>)) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS cannot be set up: {e}"))?
        .with_root_certificates(roots(ca)?);
    match pair {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(cert), Some(key)) => {
            let chain = certificates(&cert)?;
            let secret = PrivateKeyDer::from_pem_file(&key)
                .map_err(|e| format!("the private key in {key} cannot be read: {e}"))?;
            let fits = builder.with_client_auth_cert(chain, secret);
            fits.map_err(|e| format!("the certificate {cert} and the key {key} do not match: {e}"))
        }
        _ => Err("`cert` and `key` belong together: give both or neither".to_owned()),
    }
}

fn roots(ca: Option<String>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(ca) = ca else {
        let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return match added {
            0 => Err("this system has no certificate authorities: name yours with `ca=FILE`".to_owned()),
            _ => Ok(roots),
        };
    };
    for certificate in certificates(&ca)? {
        roots.add(certificate).map_err(|e| format!("{ca} holds no valid CA certificate: {e}"))?;
    }
    Ok(roots)
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(|found| found.collect::<Result<Vec<_>, _>>());
    match read {
        Ok(found) if found.is_empty() => Err(format!("{path} holds no certificate")),
        Ok(found) => Ok(found),
        Err(e) => Err(format!("the certificates in {path} cannot be read: {e}")),
    }
}
