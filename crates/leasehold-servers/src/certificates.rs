use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// Certificates for one test: an authority, a server and a client that it signed, and an authority that signed nothing.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes them in a folder. The server's is for `127.0.0.1` and `localhost`; the client's names this user.
    ///
    /// # Panics
    /// If they cannot be made or written.
    pub fn make(folder: &Path, user: &str) -> Self {
        let made = Certificates { folder: folder.to_owned() };
        let authority = authority("the tests' authority");
        made.write("ca.pem", &authority.0);
        made.write("other-ca.pem", &self::authority("an authority that signed nothing").0);
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        made.sign("server", names, "server", ExtendedKeyUsagePurpose::ServerAuth, &authority.1);
        made.sign("client", Vec::new(), user, ExtendedKeyUsagePurpose::ClientAuth, &authority.1);
        made
    }

    /// One of `ca.pem`, `other-ca.pem`, `server.pem`, `server.key`, `client.pem` and `client.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn sign(
        &self,
        file: &str,
        names: Vec<String>,
        subject: &str,
        purpose: ExtendedKeyUsagePurpose,
        authority: &Issuer<'static, KeyPair>,
    ) {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.distinguished_name.push(DnType::CommonName, subject);
        // A server that also is a client of its own (etcd's gateway) shows its certificate as both.
        params.extended_key_usages = vec![purpose, ExtendedKeyUsagePurpose::ClientAuth];
        let signed = params.signed_by(&key, authority).expect("a certificate can be signed");
        self.write(&format!("{file}.pem"), &signed.pem());
        self.write(&format!("{file}.key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).expect("a certificate can be written");
    }
}

fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().expect("a key can be made");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).expect("an authority signs itself").pem();
    (pem, Issuer::new(params, key))
}
