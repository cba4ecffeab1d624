// Package field knows header fields and parameters by what servers make of
// their names. CGI and its heirs turn a hyphen into an underscore, PHP a dot
// and a space too, others look at no case, cut a name at a NUL or take a list
// out of brackets: a name that is compared as it was written is another name
// to the server. There is one table here, for all code that has to recognise a name,
// and one way to fold a name before it is looked up.
package field

import (
	"slices"
	"strings"
	"sync"
)

// Use is what servers use a field or a parameter for.
type Use uint8

// The uses, of which a name may have several.
const (
	// Method names have a request stand for one of another method, whatever
	// their value is. No standard has them, so that a server can't be known to
	// ignore them.
	Method Use = 1 << iota
	// Word names do so where their value is a method's: see IsMethod.
	Word
	// Path names have it stand for one of another path: header fields, and those
	// parameters in which rewriting servers tell their programs the path.
	Path
	// Credential names hold a credential, in a header or in a query.
	Credential
	// FormCredential names hold one in a form too, where others are data.
	FormCredential
	// Read names are of header fields by which a message is framed, decoded or
	// passed on. One that is spelled otherwise, with an underscore say, is the
	// same field to some servers, and none to others.
	Read
)

// names has all that are known, without their separators. A leading X is left
// out of credentials.
var names = map[Use]string{
	Method: "httpmethodoverride httpmethod methodoverride overridemethod originalmethod rewritemethod forwardedmethod " +
		"xhttpmethodoverride xhttpmethod xmethodoverride xoverridemethod xoriginalmethod xrewritemethod xforwardedmethod " +
		"xmethod xtunneledmethod xrequestmethod xverb httpverb xhttpverb",
	Word: "method verb",
	Path: "xoriginalurl xoriginaluri xoriginalpath xrewriteurl xrewriteuri xrewritepath xforwardedurl xforwardeduri " +
		"xforwardedpath xforwardedprefix xoverrideurl xoverrideuri xoverridepath xurloverride xpathoverride " +
		"xhttppathoverride xhttpdestinationurl xenvoyoriginalpath xwawsunencodedurl xrequesturi requesturi xproxyurl " +
		"xurl xpath xscriptname scriptname xpathinfo pathinfo pathtranslated",
	Credential: "auth authentication authorization key passwd password pwd secret sig signature refreshtoken idtoken " +
		"proxyauthorization xsessionid dpop hmac credential credentials securitytoken " +
		"circletoken ddapikey ddapplicationkey deploytoken ocpapimsubscriptionkey subscriptionkey functionskey rapidapikey " +
		"subscriptiontoken vaulttoken keypairid",
	FormCredential: "accesskey accesskeyid accesstoken apikey apitoken authkey authtoken bearer bearertoken clientsecret " +
		"jobtoken jwt oauthtoken privatetoken sessiontoken token googapikey ossaccesskeyid awsaccesskeyid googleaccessid " +
		"amzcredential amzsecuritytoken amzsignature googcredential googsignature googsecuritytoken",
	Read: "contentlength transferencoding contentencoding contenttype contenttransferencoding keepalive proxyconnection " +
		"proxyauthorization proxyauthenticate http2settings acceptencoding grpcencoding grpcacceptencoding " +
		"connectcontentencoding connectacceptencoding ifrange requestrange " +
		"secwebsocketkey secwebsocketversion secwebsocketprotocol secwebsocketextensions",
}

// credentialEndings are those of other names for credentials, by their last
// word, and harmlessEndings those of names that only look so.
var (
	credentialEndings = map[string]string{
		"token": "-token", "apikey": "-apikey", "secret": "-secret", "password": "-password", "authorization": "-authorization",
		"credential": "-credential", "credentials": "-credentials", "key": "-api-key -access-key -auth-key",
	}
	harmlessEndings = []string{
		"-csrf-token", "-xsrf-token", "-continuation-token", "-page-token", "-next-token", "-sync-token", "-cursor-token",
		"-pagination-token", "-start-token", "-skip-token", "-delta-token", "-previous-token", "-prev-token", "-atlassian-token",
	}
)

var table = sync.OnceValue(func() map[string]Use {
	t := map[string]Use{}
	for use, all := range names {
		for _, name := range strings.Fields(all) {
			t[name] |= use
			if use == FormCredential {
				t[name] |= Credential
			}
		}
	}
	return t
})

// Of returns what a name is used for that is folded.
func Of(folded string) Use {
	var room [64]byte
	plain := room[:0]
	for i := range len(folded) {
		if c := folded[i]; c != '-' {
			plain = append(plain, c)
		}
	}
	use := table()[string(plain)]
	if len(plain) > 0 && plain[0] == 'x' {
		use |= table()[string(plain[1:])] & (Credential | FormCredential)
	}
	if use&Word != 0 && folded[0] == '-' {
		use |= Method // _method, of Rails and many others
	}
	if use&Credential == 0 && endsAsCredential(folded) {
		use |= Credential
	}
	return use
}

func endsAsCredential(folded string) bool {
	i := strings.LastIndexByte(folded, '-')
	if i < 0 {
		return false
	}
	for ending := range strings.FieldsSeq(credentialEndings[folded[i+1:]]) {
		if strings.HasSuffix(folded, ending) {
			return !slices.ContainsFunc(harmlessEndings, func(e string) bool { return folded == e[1:] || strings.HasSuffix(folded, e) })
		}
	}
	return false
}

// Header returns what a header field of that name is used for.
func Header(name string) Use { return Of(Fold(name)) }

// Parameter returns what a parameter is used for in any of its readings; its
// name is as it came.
func Parameter(raw string) (use Use) {
	for _, name := range Readings(raw) {
		use |= Of(name) &^ Path
		if slices.Contains(pathParameters, name) {
			use |= Path
		}
	}
	return use
}

var pathParameters = []string{"-url", "-uri", "-path", "-route"}

// Misspelt reports whether some servers read a header field as one that frames
// or encodes the message, or is of the hop, and others do not.
func Misspelt(name string) bool {
	return !strings.EqualFold(name, Fold(name)) && Header(name)&Read != 0
}

// methods are those that a server may know.
var methods = strings.Fields("GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT TRACK DEBUG QUERY PURGE BAN REFRESH LINK UNLINK " +
	"COPY MOVE LOCK UNLOCK MKCOL MKCALENDAR MKWORKSPACE MKACTIVITY MKREDIRECTREF PROPFIND PROPPATCH REPORT SEARCH ACL BIND UNBIND REBIND " +
	"CHECKIN CHECKOUT UNCHECKOUT VERSION-CONTROL BASELINE-CONTROL LABEL MERGE UPDATE ORDERPATCH UPDATEREDIRECTREF NOTIFY SUBSCRIBE UNSUBSCRIBE " +
	"REMOVE DESTROY")

// IsMethod reports whether a value is a method's name, in any case.
func IsMethod(value string) bool {
	return slices.Contains(methods, strings.ToUpper(strings.TrimSpace(value)))
}
