use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_store::Address;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How to encrypt. The files are read for every connection, so that certificates can be replaced at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file with the trusted authorities; without it, those of the system.
    pub ca: Option<PathBuf>,
    /// PEM files with the client's certificate (and what signed it), and with its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name to expect in the server's certificate, if it is not the host's.
    pub server_name: Option<String>,
}

impl Tls {
    /// The TLS options of an address; mistakes are noted there.
    pub(crate) fn of_address(address: &mut Address) -> Option<Self> {
        let wanted = address.param("tls");
        let (ca, cert, key) = (address.param("ca"), address.param("cert"), address.param("key"));
        let server_name = address.param("server_name");
        let named = ca.is_some() || cert.is_some() || key.is_some() || server_name.is_some();
        let identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            (Some(_), None) => {
                address.wrong("`cert` is given without `key`: a client certificate needs both");
                None
            }
            (None, Some(_)) => {
                address.wrong("`key` is given without `cert`: a client certificate needs both");
                None
            }
        };
        let on = match wanted.as_deref() {
            None => named,
            Some("on") => true,
            Some("off") if named => {
                address.wrong("`tls=off` contradicts the certificates in the address: remove one of them");
                false
            }
            Some("off") => false,
            Some(_) => {
                address.wrong("invalid value of `tls`: write on or off");
                false
            }
        };
        let tls = on.then_some(Tls { ca: ca.map(PathBuf::from), identity, server_name })?;
        if let Err(problem) = tls.config(b"h2") {
            address.wrong(problem);
        }
        Some(tls)
    }

    /// Reads the files, for connections that speak this protocol.
    pub(crate) fn config(&self, protocol: &[u8]) -> Result<Arc<ClientConfig>, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("TLS cannot be set up: {e}"))?
            .with_root_certificates(self.roots()?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = certificates(cert)?;
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| unreadable(key, &e))?;
                builder.with_client_auth_cert(chain, secret).map_err(|e| {
                    format!("the certificate {} and the key {}: {e}", cert.display(), key.display())
                })?
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(path) => {
                for certificate in certificates(path)? {
                    roots
                        .add(certificate)
                        .map_err(|e| format!("the authority in {}: {e}", path.display()))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        match roots.is_empty() {
            true => {
                Err("this system has no trusted certificate authorities: name one with ca=FILE".to_owned())
            }
            false => Ok(roots),
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|e| unreadable(path, &e))?;
    match found.is_empty() {
        true => Err(format!("{} holds no certificate in PEM form", path.display())),
        false => Ok(found),
    }
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{} cannot be read: {error}", path.display())
}
