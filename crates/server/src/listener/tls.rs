//! TLS with a certificate of files, which are read again when they change.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use polity_definition::TlsSettings;
use polity_files::read_named_file;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// The shortest time between two looks at the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The largest file of a certificate or key.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An error of the certificate or its key.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the file {} of server.tls.{field}: {source}", path.display())]
    Unreadable { field: &'static str, path: PathBuf, source: io::Error },
    /// A file has no certificate or no key.
    #[error("{} of server.tls.{field} has no {field} in PEM form", path.display())]
    Empty { field: &'static str, path: PathBuf },
    /// The certificate and the key do not fit, or are of an unknown kind.
    #[error("the certificate {} cannot be used with its key: {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// Makes the acceptor of TLS connections.
pub(crate) fn tls_acceptor(home: &Path, settings: &TlsSettings) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(default_provider());
    let files = CertificateFiles {
        certificate: home.join(settings.certificate.as_str()),
        key: home.join(settings.key.as_str()),
    };
    let resolver = LiveCertificate::read(files, Arc::clone(&provider))?;
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(|error| TlsError::Setup(error.to_string()))?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The files of a certificate.
#[derive(Debug)]
struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
}

/// The version of both files: times, sizes and inodes.
type CertificateVersion = [Option<(SystemTime, u64, u64)>; 2];

impl CertificateFiles {
    fn version(&self) -> CertificateVersion {
        [&self.certificate, &self.key].map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
        })
    }

    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let read = |field, path: &Path| {
            read_named_file(path, FILE_BYTES_MAX).map_err(|error| TlsError::Unreadable {
                field,
                path: path.to_owned(),
                source: error.into(),
            })
        };
        let pem = read("certificate", &self.certificate)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let empty = |field, path: &Path| TlsError::Empty { field, path: path.to_owned() };
        let chain = chain.ok_or_else(|| empty("certificate", &self.certificate))?;
        let pem = read("key", &self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| empty("key", &self.key))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| TlsError::Unusable {
            path: self.certificate.clone(),
            reason: error.to_string(),
        })
    }
}

/// The certificate as its files have it. Files that cannot be used keep the one before.
#[derive(Debug)]
struct LiveCertificate {
    files: CertificateFiles,
    provider: Arc<CryptoProvider>,
    current: Mutex<LoadedCertificate>,
}

#[derive(Debug)]
struct LoadedCertificate {
    key: Arc<CertifiedKey>,
    version: CertificateVersion,
    checked: Instant,
}

impl LiveCertificate {
    fn read(files: CertificateFiles, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let version = files.version();
        let key = Arc::new(files.read(&provider)?);
        let current = Mutex::new(LoadedCertificate { key, version, checked: Instant::now() });
        Ok(Self { files, provider, current })
    }

    fn get(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.checked.elapsed() >= CHECK_INTERVAL {
            current.checked = Instant::now();
            let version = self.files.version();
            if version != current.version {
                current.version = version;
                match self.files.read(&self.provider) {
                    Ok(key) => {
                        tracing::info!("the certificate was read again");
                        current.key = Arc::new(key);
                    }
                    Err(error) => tracing::error!(%error, "the certificate stays as it was"),
                }
            }
        }
        Arc::clone(&current.key)
    }
}

impl ResolvesServerCert for LiveCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get())
    }
}
