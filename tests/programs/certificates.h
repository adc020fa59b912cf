/* Requests, certificates and signed messages, there and back: part of crypto.c. */
#ifndef CERTIFICATES_H
#define CERTIFICATES_H

#include <openssl/cms.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

/* A certificate of a key, signed with the same key, written and read again. */
static X509 *certificate_of(EVP_PKEY *key, const EVP_MD *digest)
{
	X509_REQ *request = X509_REQ_new();
	X509_NAME *name = X509_REQ_get_subject_name(request);
	CHECK(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"probed", -1, -1, 0));
	CHECK(X509_REQ_set_pubkey(request, key) && X509_REQ_sign(request, key, digest) > 0);
	CHECK(X509_REQ_verify(request, key) == 1);
	X509 *made = X509_new();
	CHECK(X509_set_version(made, 2) && ASN1_INTEGER_set(X509_get_serialNumber(made), 7));
	CHECK(X509_set_subject_name(made, name) && X509_set_issuer_name(made, name));
	CHECK(X509_gmtime_adj(X509_getm_notBefore(made), -60) && X509_gmtime_adj(X509_getm_notAfter(made), 86400));
	CHECK(X509_set_pubkey(made, X509_REQ_get0_pubkey(request)) && X509_sign(made, key, digest) > 0);
	X509_REQ_free(request);
	BIO *text = BIO_new(BIO_s_mem());
	CHECK(PEM_write_bio_X509(text, made));
	X509 *read = PEM_read_bio_X509(text, NULL, NULL, NULL);
	CHECK(read && X509_cmp(made, read) == 0);
	BIO_free(text);
	X509_free(made);
	return read;
}

static int is_trusted(X509 *certificate, X509_STORE *store)
{
	X509_STORE_CTX *context = X509_STORE_CTX_new();
	CHECK(X509_STORE_CTX_init(context, store, certificate, NULL));
	int trusted = X509_verify_cert(context) == 1;
	X509_STORE_CTX_free(context);
	return trusted;
}

/* Whether a DER message is signed by a trusted signer, and contains these `count` bytes. */
static int is_believed(const unsigned char *der, long size, X509_STORE *store, const unsigned char *bytes, long count)
{
	CMS_ContentInfo *message = d2i_CMS_ContentInfo(NULL, &der, size);
	BIO *out = BIO_new(BIO_s_mem());
	char *said;
	int believed = message && CMS_verify(message, NULL, store, NULL, out, CMS_BINARY) == 1;
	if (believed)
		CHECK(BIO_get_mem_data(out, &said) == count && memcmp(said, bytes, (size_t)count) == 0);
	BIO_free(out);
	CMS_ContentInfo_free(message);
	return believed;
}

/* The keys are random, so the checks are that matching data passes, and other data is refused. */
static void certify(EVP_PKEY *key, EVP_PKEY *other, const unsigned char *bytes, long count)
{
	const EVP_MD *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : EVP_sha256();
	X509 *own = certificate_of(key, digest), *wrong = certificate_of(key, digest);
	/* The same text, signed with another key. */
	CHECK(X509_sign(wrong, other, EVP_PKEY_is_a(other, "ED25519") ? NULL : EVP_sha256()) > 0);
	CHECK(X509_verify(own, key) == 1 && X509_verify(wrong, key) != 1);
	X509_STORE *store = X509_STORE_new(), *empty = X509_STORE_new();
	CHECK(X509_STORE_add_cert(store, own));
	CHECK(is_trusted(own, store) && !is_trusted(own, empty));
	/* Messages are signed over a digest. */
	if (digest) {
		BIO *text = BIO_new_mem_buf(bytes, (int)count);
		CMS_ContentInfo *message = CMS_sign(own, key, NULL, text, CMS_BINARY);
		unsigned char *der = NULL;
		int size = message ? i2d_CMS_ContentInfo(message, &der) : 0;
		CHECK(size > count && is_believed(der, size, store, bytes, count));
		CHECK(!is_believed(der, size, empty, bytes, count));
		/* Changes a byte at the end of the signature. */
		der[size - 1] ^= 1;
		CHECK(!is_believed(der, size, store, bytes, count));
		OPENSSL_free(der);
		CMS_ContentInfo_free(message);
		BIO_free(text);
	}
	X509_STORE_free(store);
	X509_STORE_free(empty);
	X509_free(own);
	X509_free(wrong);
	EVP_PKEY_free(key);
	EVP_PKEY_free(other);
}

#endif
