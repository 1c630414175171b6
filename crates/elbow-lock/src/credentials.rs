//! How a client and a service over TCP know each other. All that they say is then sealed: TLS 1.3, in which each side proves that it has
//! a key, so that nobody between them can read a frame, change one or slip one in.
//!
//! - *A shared key.* Both derive from it a pair of Ed25519 keys for each side, and take exactly the other side's raw public key.
//! - *Certificates.* Each side has one of its own, and takes those that one authority has signed.
//!
//! Not here: sockets. Source: RFC 8446 (TLS 1.3), RFC 7250 (raw public keys), RFC 8410 (Ed25519 keys in PKCS #8), RFC 2104 (HMAC).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error as TlsError, PeerIncompatible,
    RootCertStore, ServerConfig, SignatureScheme, SupportedProtocolVersion,
};
use sha2::Sha256;

/// Shortest shared key, in bytes.
pub const KEY_BYTES_MIN: usize = 16;
const VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
/// What stands before the 32 bytes of an Ed25519 private key in PKCS #8 (RFC 8410, section 7).
const ED25519_PKCS8: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// By what a client and a service over TCP know each other.
///
/// ```
/// use elbow_lock::Credentials;
///
/// assert!(Credentials::of_key(b"Tq3vYxE0bKk4M9wd\n").is_ok());
/// assert!(Credentials::of_key(b"password\n").is_err()); // shorter than 16 bytes
/// ```
#[derive(Clone)]
pub struct Credentials {
    client: Arc<ClientConfig>,
    #[cfg_attr(not(feature = "server"), expect(dead_code, reason = "nobody is a service then"))]
    server: Arc<ServerConfig>,
    /// Whether the service's certificate must be for the host of its address.
    by_host: bool,
}

/// Credentials that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadCredentials {
    /// A file that cannot be read.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file, as it was named.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A key of fewer than [`KEY_BYTES_MIN`] bytes.
    #[error("fewer than {KEY_BYTES_MIN} bytes; make a key with: head -c 32 /dev/urandom | base64")]
    ShortKey,
    /// A file of a directory of certificates.
    #[error("{}: {why}", path.display())]
    Certificate {
        /// The file in the directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The three files of a directory do not go together.
    #[error("{why}")]
    Unfit {
        /// Why not.
        why: String,
    },
}

impl From<TlsError> for BadCredentials {
    fn from(error: TlsError) -> Self {
        let why = error.to_string();
        Self::Unfit { why }
    }
}

impl Credentials {
    /// What `path` has: a file a shared key, a directory certificates: the authority's in `ca.pem`, our own in `cert.pem` and its private
    /// key in `key.pem`.
    ///
    /// # Errors
    /// When it cannot be read, or is neither.
    #[allow(
        clippy::disallowed_methods,
        reason = "our own configuration, not storage of the user's"
    )]
    pub fn read(path: &Path) -> Result<Self, BadCredentials> {
        if path.is_dir() {
            return Self::of_certificates(path);
        }
        let unreadable = |source| BadCredentials::Unreadable {
            path: path.to_owned(),
            source,
        };
        Self::of_key(&std::fs::read(path).map_err(unreadable)?)
    }

    /// A shared key: everything but white space around it.
    ///
    /// # Errors
    /// When it has fewer than [`KEY_BYTES_MIN`] bytes.
    pub fn of_key(content: &[u8]) -> Result<Self, BadCredentials> {
        let key = content.trim_ascii();
        if key.len() < KEY_BYTES_MIN {
            return Err(BadCredentials::ShortKey);
        }
        let provider = Arc::new(ring::default_provider());
        let [ours, theirs] = [b"elbow lock client", b"elbow lock server"].map(|side| derived(key, side, &provider));
        let (client, server) = (Arc::new(ours?), Arc::new(theirs?));
        let only_client = OnlyKey::of(&client, &provider)?;
        let only_server = OnlyKey::of(&server, &provider)?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)?
            .dangerous()
            .with_custom_certificate_verifier(only_server)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(client)));
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)?
            .with_client_cert_verifier(only_client)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(server)));
        Ok(Self::new(client, server, false))
    }

    fn of_certificates(directory: &Path) -> Result<Self, BadCredentials> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for authority in certificates(&directory.join("ca.pem"))? {
            roots.add(authority)?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(&directory.join("cert.pem"))?;
        let path = directory.join("key.pem");
        let key = PrivateKeyDer::from_pem_file(&path).map_err(|error| bad_pem(&path, error))?;
        let unfit = |error: rustls::client::VerifierBuilderError| BadCredentials::Certificate {
            path: directory.join("ca.pem"),
            why: error.to_string(),
        };
        let services = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(unfit)?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(unfit)?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)?
            .with_webpki_verifier(services)
            .with_client_auth_cert(chain.clone(), key.clone_key())?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(VERSIONS)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)?;
        Ok(Self::new(client, server, true))
    }

    /// Nobody comes back by a ticket: each connection proves all anew.
    fn new(mut client: ClientConfig, mut server: ServerConfig, by_host: bool) -> Self {
        client.resumption = Resumption::disabled();
        client.enable_sni = by_host;
        server.send_tls13_tickets = 0;
        Self {
            client: Arc::new(client),
            server: Arc::new(server),
            by_host,
        }
    }

    /// How to speak as a client to the service at HOST:PORT.
    pub(crate) fn for_client(&self, place: &str) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
        let host = if self.by_host { host(place) } else { "service" };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            let why = format!("{host} is no name of a host, as a certificate has it");
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        Ok((Arc::clone(&self.client), name))
    }

    /// How to speak as a service.
    #[cfg(feature = "server")]
    pub(crate) fn for_service(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Credentials(..)")
    }
}

/// Why the two sides did not take each other, if that is what an attempt failed of.
pub(crate) fn refusal(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<TlsError>()?;
    Some(match error {
        TlsError::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            "it does not know our key".to_owned()
        }
        TlsError::InvalidCertificate(why) => format!("its certificate is not good: {why}"),
        TlsError::PeerIncompatible(
            PeerIncompatible::IncorrectCertificateTypeExtension | PeerIncompatible::UnsolicitedCertificateTypeExtension,
        ) => OTHER_KIND.to_owned(),
        TlsError::AlertReceived(why) => format!("it does not take our key or certificate ({why:?})"),
        TlsError::InvalidMessage(_) => {
            "it asks for no key, and so cannot be the one we share a key or an authority with".to_owned()
        }
        other => other.to_string(),
    })
}

const OTHER_KIND: &str = "one side has a shared key, the other certificates";

fn host(place: &str) -> &str {
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BadCredentials> {
    let all: Result<Vec<_>, pem::Error> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match all {
        Ok(all) if all.is_empty() => Err(bad_pem(path, pem::Error::NoItemsFound)),
        Ok(all) => Ok(all),
        Err(error) => Err(bad_pem(path, error)),
    }
}

fn bad_pem(path: &Path, error: pem::Error) -> BadCredentials {
    let path = path.to_owned();
    match error {
        pem::Error::Io(source) => BadCredentials::Unreadable { path, source },
        pem::Error::NoItemsFound => BadCredentials::Certificate {
            path,
            why: "nothing in PEM that belongs here".to_owned(),
        },
        error => BadCredentials::Certificate {
            path,
            why: error.to_string(),
        },
    }
}

/// The key pair of one side.
fn derived(key: &[u8], side: &[u8], provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(side);
    let mut pkcs8 = ED25519_PKCS8.to_vec();
    pkcs8.extend_from_slice(&mac.finalize().into_bytes());
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8));
    let private = provider.key_provider.load_private_key(private)?;
    let public = private.public_key().map(|public| CertificateDer::from(public.to_vec()));
    let public = public.ok_or_else(|| TlsError::General("an Ed25519 key has a public half".to_owned()))?;
    Ok(CertifiedKey::new(vec![public], private))
}

/// Takes one public key, and no other.
#[derive(Debug)]
struct OnlyKey {
    /// As SubjectPublicKeyInfo (RFC 5280).
    public: CertificateDer<'static>,
    schemes: WebPkiSupportedAlgorithms,
}

impl OnlyKey {
    fn of(pair: &CertifiedKey, provider: &CryptoProvider) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self {
            public: pair.end_entity_cert()?.clone().into_owned(),
            schemes: provider.signature_verification_algorithms,
        }))
    }

    fn check(&self, theirs: &CertificateDer<'_>) -> Result<(), TlsError> {
        match *theirs == self.public {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify(
        &self,
        message: &[u8],
        theirs: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let public = SubjectPublicKeyInfoDer::from(theirs.as_ref());
        verify_tls13_signature_with_raw_key(message, &public, signed, &self.schemes)
    }
}

/// TLS 1.2 is never spoken.
fn no_older_tls() -> Result<HandshakeSignatureValid, TlsError> {
    Err(PeerIncompatible::Tls12NotOffered.into())
}

impl ServerCertVerifier for OnlyKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        no_older_tls()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for OnlyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        no_older_tls()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_what_certificates_call_them() {
        assert_eq!(host("head:7700"), "head");
        assert_eq!(host("10.0.0.1:7700"), "10.0.0.1");
        assert_eq!(host("[::1]:7700"), "::1");
    }
}
